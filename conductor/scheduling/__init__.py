"""From a request for hosts to a claim on them, with reasons for every refusal."""

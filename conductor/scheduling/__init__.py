"""From a request to a claim on a host, with reasons."""

"""Messages: their schemas, their versions, and what was ever sent."""

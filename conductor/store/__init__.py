"""The unit of work: its ports, the SQL adapter and the in-memory twin."""

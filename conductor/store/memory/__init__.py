"""The in-memory twin of the SQL adapter."""

"""The adapter for SQLite and PostgreSQL."""

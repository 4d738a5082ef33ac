"""The promises of `conductor.store.ports`, kept by the in-memory twin, SQLite and PostgreSQL."""

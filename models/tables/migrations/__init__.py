"""How the tables came to be, one revision a file; run by `models.tables.schema_upgrade`."""

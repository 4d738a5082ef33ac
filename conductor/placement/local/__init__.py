"""Placement over our own tables, in the caller's unit of work."""

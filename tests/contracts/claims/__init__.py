"""Claims, on every store."""

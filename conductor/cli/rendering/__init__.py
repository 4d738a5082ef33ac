"""How data is shown: JSON views, tables, pictures of hosts."""

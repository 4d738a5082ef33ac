"""What acts on one host, without a database."""

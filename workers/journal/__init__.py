"""What a worker has promised and done, kept beyond its death."""

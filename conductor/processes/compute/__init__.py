"""The process of one host, put together."""

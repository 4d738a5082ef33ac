"""Moves operations: accepts requests, runs steps and undoes them, waits, and ends operations."""

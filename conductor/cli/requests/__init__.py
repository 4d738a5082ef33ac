"""Sending requests, and waiting for their operations to end."""

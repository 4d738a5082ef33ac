"""Quotas, on every store."""

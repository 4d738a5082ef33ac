"""Placement, on every adapter."""

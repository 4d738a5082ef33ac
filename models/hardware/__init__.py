"""Frozen values and pure functions that decide where a guest fits."""

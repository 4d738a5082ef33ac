"""Ratios measured inside one run."""

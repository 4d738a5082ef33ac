"""Allocation candidates: which providers of a tree can serve a request, found by search (pure)."""

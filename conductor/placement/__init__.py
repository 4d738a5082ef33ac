"""Providers, inventories, traits, aggregates and allocations."""

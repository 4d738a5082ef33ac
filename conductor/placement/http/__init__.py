"""Placement over an OpenStack Placement server."""

"""A Placement server kept equal to our own tables."""

"""Pure tests of the compute worker."""

"""Pure tests of the operation engine."""

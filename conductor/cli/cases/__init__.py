"""Commands without a system: questions as JSON lines, answered by the functional core."""

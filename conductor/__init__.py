"""What decides: operations, scheduling, placement and their store."""

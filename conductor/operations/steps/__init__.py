"""Steps that several operations share, and the checks of their requests."""

"""One file per operation, each step followed by its undo."""

"""What crosses a process boundary, versioned."""

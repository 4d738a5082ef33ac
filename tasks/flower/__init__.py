"""What Flower and `AsyncResult` are shown of operations and instructions, apart from the work."""

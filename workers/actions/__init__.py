"""The instructions that a host can carry out."""

"""What the control plane promises, as sentences."""

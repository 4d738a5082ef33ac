"""The language that every process of the control plane speaks."""

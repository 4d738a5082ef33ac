"""From a `SelectHosts` message to request specs, and from decisions to the reply."""

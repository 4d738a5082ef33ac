"""One module a command or group; each has `add_to(app)` and is loaded only when asked for."""

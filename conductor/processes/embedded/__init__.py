"""The whole system in one process, on the in-process bus."""

"""Allocations compared with what instances, moves and hosts say, and repaired."""

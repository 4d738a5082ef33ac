"""The fleet in memory: hosts, columns, checks, cached fits, recent history."""

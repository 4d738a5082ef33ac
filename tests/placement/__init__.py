"""The placement service: providers, candidates, claims, audits; pure and in memory."""

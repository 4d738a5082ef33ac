"""Consuming: a hardened Celery consumer, retries while the store is away, acknowledgement."""

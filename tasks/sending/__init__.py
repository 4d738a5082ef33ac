"""Sending: the carrier over RabbitMQ with batched confirms, and the in-process bus."""

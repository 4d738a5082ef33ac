"""Tests against RabbitMQ, PostgreSQL and Redis."""

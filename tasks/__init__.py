"""The carrier over Celery: application, routing and task bodies of one call."""

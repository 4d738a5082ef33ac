"""Build an instance with plain Celery and wait until it runs."""

import os
import uuid

from celery import Celery

app = Celery(broker=os.environ["BROKER_URL"], backend=os.environ["RESULT_URL"])
app.conf.task_routes = {"conductor.*": {"exchange": "conductor", "routing_key": "conductor"}}
instance = {"name": "web", "flavor": {"vcpus": 1, "memory_mb": 512}, "image": {"id": "debian-13"}}
body = {"context": {"project_id": "demo"}, "instance": instance}
operation_id = str(uuid.uuid4())  # the same id again is the same operation
result = app.send_task("conductor.build_instances", kwargs=body, task_id=operation_id)
print(operation_id, result.get(timeout=60))

"""Build an instance with plain AMQP and wait for the answer on a queue of our own."""

import json
import os
import uuid

import pika

channel = pika.BlockingConnection(pika.URLParameters(os.environ["BROKER_URL"])).channel()
mine = channel.queue_declare("", exclusive=True).method.queue
instance = {"name": "web", "flavor": {"vcpus": 1, "memory_mb": 512}, "image": {"id": "debian-13"}}
body = json.dumps([[], {"context": {"project_id": "demo"}, "instance": instance}, {}])
headers = {"task": "conductor.build_instances", "id": str(uuid.uuid4())}
request = pika.BasicProperties("application/json", headers=headers, reply_to=mine)
channel.basic_publish("conductor", "conductor", body, request)
print(next(channel.consume(mine, auto_ack=True))[2].decode())

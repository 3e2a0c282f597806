"""Prints each grant of the topic once: python3 topic.py BROKERS TOPIC GROUP DEPLOYMENT N.

It needs confluent-kafka (pip install -r requirements.txt), and ends after N grants. This example keeps seen events
in memory, so it is for display only. If money or points depend on an event, store (shard, seq) and the effect in one
transaction of your database, as docs/subscribers.md says.
"""
import sys

from confluent_kafka import Consumer, KafkaException

brokers, topic, group, deployment, left = *sys.argv[1:5], int(sys.argv[5])
consumer = Consumer({
    "bootstrap.servers": brokers,
    "group.id": group,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
})
consumer.subscribe([topic])
seen = set()  # a high-water mark would drop grants that come late
try:
    while left > 0:
        records = consumer.consume(500, timeout=1)
        for record in records:
            if record.error():
                raise KafkaException(record.error())
            headers = {name: (value or b"").decode() for name, value in record.headers() or []}
            event = (headers.get("shard"), headers.get("seq"))
            ours = (headers.get("ce_type") == "hongbao.grant.v1"
                    and headers.get("ce_source") == f"/hongbao/{deployment}")
            if ours and event not in seen:
                seen.add(event)
                print(record.value().decode(), flush=True)
                left -= 1
        if records:
            consumer.commit(asynchronous=False)  # after the effect, never before
finally:
    consumer.close()

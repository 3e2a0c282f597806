"""Gives each grant of the topic its effect once: python3 topic.py BROKERS TOPIC GROUP DEPLOYMENT N FILE.

It needs confluent-kafka (pip install -r requirements.txt). The effect is points in FILE, a SQLite database. One
transaction stores the grant and its points, so a copy has no effect, also after a restart. The program prints each new
grant, and ends after N of them.
"""
import json
import sqlite3
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

brokers, topic, group, deployment, left, file = *sys.argv[1:5], int(sys.argv[5]), sys.argv[6]
db = sqlite3.connect(file)
db.executescript("""
    CREATE TABLE IF NOT EXISTS seen (source, campaign, packet, user_id, PRIMARY KEY (source, campaign, packet));
    CREATE TABLE IF NOT EXISTS points (user_id PRIMARY KEY, n);
    CREATE TABLE IF NOT EXISTS letters (value, why);
""")


def effect(source, grant):
    """Stores a grant and its effect. It returns False for a copy."""
    row = source, grant["campaign"], grant["packet"]
    if db.execute("INSERT INTO seen VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", (*row, grant["user"])).rowcount:
        db.execute("INSERT INTO points VALUES (?, ?) ON CONFLICT (user_id) DO UPDATE SET n = n + excluded.n",
                   (grant["user"], grant["amount"]))
        return True
    (user,) = db.execute("SELECT user_id FROM seen WHERE source = ? AND campaign = ? AND packet = ?", row).fetchone()
    if user != grant["user"]:
        raise ValueError(f"another user has this packet: ask the operator whether the ledger has paid {user}")
    return False


def handle(source, value):
    """Handles a record in one transaction, as a dead letter if it must. It returns True for a new grant."""
    try:
        with db:
            return effect(source, json.loads(value))
    except (ValueError, KeyError, TypeError) as why:  # if the database is down, the program ends
        print(f"dead letter: {why!r}", file=sys.stderr)  # raise an alarm
        with db:
            db.execute("INSERT INTO letters VALUES (?, ?)", (value, repr(why)))
        return False


def begin(consumer, assigned):
    """Ends the program if grants expired unread, or may have. A group without an offset begins at offset 0 only."""
    new = []
    for at in consumer.committed(assigned, timeout=10):
        first, _ = consumer.get_watermark_offsets(at, timeout=10)
        if first > max(at.offset, 0):  # a negative offset: none
            raise RuntimeError(f"{at} is the group's offset, and the log begins at {first}: see docs/subscribers.md, "
                               '"Where to begin to read"')
        if at.offset < 0:
            new.append(TopicPartition(at.topic, at.partition, 0))
    known = [p for p in assigned if (p.topic, p.partition) not in {(n.topic, n.partition) for n in new}]
    consumer.assign(known + new)
    if new:
        consumer.commit(offsets=new, asynchronous=False)


consumer = Consumer({
    "bootstrap.servers": brokers,
    "group.id": group,
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
})
consumer.subscribe([topic], on_assign=begin)
try:
    while left > 0:
        record = consumer.poll(1)
        if record is None:
            continue
        if record.error():
            raise KafkaException(record.error())
        headers = {name: (value or b"").decode() for name, value in record.headers() or []}
        source = headers.get("ce_source")
        if headers.get("ce_type") == "hongbao.grant.v1" and source == f"/hongbao/{deployment}":
            if handle(source, record.value()):
                print(record.value().decode(), flush=True)
                left -= 1
        consumer.commit(record)  # after the effect, never before
finally:
    consumer.close()

"""Receives the events of a webhook sink, and gives each grant its effect once: python3 webhook.py PORT FILE.

It needs standardwebhooks (pip install -r requirements.txt). WEBHOOK_SECRET has the secret. The effect is points in
FILE, a SQLite database. One transaction stores the id of the event and its points, so a copy has no effect. The program
prints its URL, and then each new grant.
"""
import json
import os
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

port, file = int(sys.argv[1]), sys.argv[2]
webhook = Webhook(os.environ["WEBHOOK_SECRET"])
db, lock = sqlite3.connect(file, check_same_thread=False), threading.Lock()
db.executescript("""
    CREATE TABLE IF NOT EXISTS seen (source, id, user_id, PRIMARY KEY (source, id));
    CREATE TABLE IF NOT EXISTS points (user_id PRIMARY KEY, n);
""")


def effect(event):
    """Stores an event and its effect in one transaction. A copy changes nothing."""
    grant, row = event["data"], (event["source"], event["id"])
    with lock:  # of the database and of the output: requests run in threads
        with db:
            new = db.execute("INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (*row, grant["user"])).rowcount
            if new:
                db.execute("INSERT INTO points VALUES (?, ?) ON CONFLICT (user_id) DO UPDATE SET n = n + excluded.n",
                           (grant["user"], grant["amount"]))
            (user,) = db.execute("SELECT user_id FROM seen WHERE source = ? AND id = ?", row).fetchone()
        if new:
            print(json.dumps(grant), flush=True)
    if user != grant["user"]:
        raise ValueError(f"another user has this packet: ask the operator whether the ledger has paid {user}")


def status(headers, body):
    """Handles a request and returns the status. 401 stops the sink, 422 makes a dead letter, 503 makes it try again."""
    try:
        webhook.verify(body, headers, json_parse=False)  # the bytes as they came
    except (WebhookVerificationError, ValueError):
        return 401
    try:
        event = json.loads(body)
        if event["type"] == "hongbao.grant.v1":  # any other type is new, and not for this program
            effect(event)
        return 204
    except (ValueError, KeyError, TypeError):
        return 422
    except sqlite3.Error:
        return 503


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    timeout = 60

    def do_POST(self):
        body = self.rfile.read(min(int(self.headers["content-length"]), 65536))
        self.send_response(status(dict(self.headers), body))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()

"""Grabs once, with Python's standard library: grab.py URL CAMPAIGN USER.

EXAMPLE_SECRET has the secret of the key "k1". Your identity provider signs the tokens of real users;
ISSUER and AUDIENCE are serve.issuer and serve.audience.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.request


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(user: str) -> str:
    head = base64url(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "k1"}).encode())
    claims = {"iss": os.environ["ISSUER"], "aud": os.environ["AUDIENCE"], "sub": user, "device_id": user + "-phone"}
    claims["exp"] = int(time.time()) + 60
    body = base64url(json.dumps(claims).encode())
    key = os.environ["EXAMPLE_SECRET"].encode()
    return f"{head}.{body}." + base64url(hmac.new(key, f"{head}.{body}".encode(), hashlib.sha256).digest())


def grab(url: str, campaign: str, user: str, request_id: str) -> dict:
    """Sends one grab until it is decided: every repeat has the same request id, so it gets the same answer."""
    for attempt in range(10):
        request = urllib.request.Request(
            f"{url}/v1/campaigns/{campaign}/grabs",
            data=json.dumps({"request_id": request_id}).encode(),
            headers={"Authorization": "Bearer " + token(user), "Content-Type": "application/json"},
        )
        pause = min(0.1 * 2**attempt, 2)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as problem:
            if problem.code not in (408, 429, 503):
                raise RuntimeError(json.load(problem)) from problem
            pause = float(problem.headers.get("Retry-After", pause))
        except OSError:
            pass  # the grab may have been granted: repeat it
        time.sleep(pause)
    raise RuntimeError("no answer; the same request id may be sent later")


if __name__ == "__main__":
    print(json.dumps(grab(*sys.argv[1:4], request_id=secrets.token_hex(8))))

"""Whether a part of the Spark cluster works: exit code 0, or 1 and why.

python health.py master | worker | connect
"""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.request
from typing import Any

_SECONDS = 3.0


def main(part: str) -> str:
    """The fault; empty where there is none."""
    if part == "master":
        status = _status("127.0.0.1", 8080)["status"]
        return "" if status == "ALIVE" else f"it is {status}"
    master = _status(os.environ.get("SPARK_MASTER", "spark-master"), 8080)
    if part == "worker":
        own_id = _status("127.0.0.1", 8081)["id"]
        alive = any(w["id"] == own_id and w["state"] == "ALIVE" for w in master["workers"])
    else:
        socket.create_connection(("127.0.0.1", 15002), _SECONDS).close()
        alive = any(app["name"] == "penstock" for app in master["activeapps"])
    return "" if alive else "it is not registered at the master"


def _status(host: str, port: int) -> Any:
    with urllib.request.urlopen(f"http://{host}:{port}/json/", timeout=_SECONDS) as answer:
        return json.load(answer)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]) or 0)
    except OSError as error:
        sys.exit(f"no answer: {error}")

"""Whether a part of the Spark cluster works: exit code 0, or 1 and why.

python health.py master | worker | connect
"""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from typing import Any

_SECONDS = 5.0


def main(part: str) -> str:
    """What is wrong; empty when nothing is."""
    if part == "connect":
        socket.create_connection(("127.0.0.1", 15002), _SECONDS).close()
        return ""
    told = _told(8080 if part == "master" else 8081)
    if part == "master":
        return "" if told["status"] == "ALIVE" else f"it is {told['status']}"
    return "" if told["masterwebuiurl"] else "it has no master"


def _told(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=_SECONDS) as answer:
        return json.load(answer)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]) or 0)
    except OSError as error:
        sys.exit(f"no answer: {error}")

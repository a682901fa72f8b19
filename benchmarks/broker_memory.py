"""What the broker's memory is used for, beside what its process is given by the system."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from urllib.request import urlopen

from penstock.runtime.broker import Broker

_GOGC = "400"  # as `penstock.runtime.broker` starts it
_SECONDS = 2.0


def live_heap_bytes(broker: Broker) -> int:
    """What the broker's last garbage collection kept; 0 while the broker does not answer.

    Go collects when the heap is (100 + GOGC) % of that, so up to four fifths of the resident memory
    are garbage at GOGC=400: they show how much is allocated between collections, not what grows.
    """
    share = 1 + int(os.environ.get("GOGC", _GOGC)) / 100
    pages = f"{broker.monitor_url}/debug/vars"
    with suppress(OSError, ValueError, LookupError), urlopen(pages, timeout=_SECONDS) as answer:
        return int(json.load(answer)["memstats"]["NextGC"] / share)
    return 0

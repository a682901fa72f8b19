"""Whether the service of this container is ready: exit code 0, or 1 and why.

python ready.py PORT
"""

from __future__ import annotations

import sys
from urllib.error import HTTPError
from urllib.request import urlopen

try:
    urlopen(f"http://127.0.0.1:{int(sys.argv[1])}/readyz", timeout=5).close()
except HTTPError as error:
    sys.exit(error.read(2000).decode("utf-8", "replace"))
except OSError as error:
    sys.exit(f"no answer: {error}")

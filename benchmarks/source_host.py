"""An executor that does not look at what other programs of the machine use: for `sources.py`.

Kubernetes places pods by what they request, whatever else the node does. On a machine that others
work on, Penstock would start fewer workers than KEDA's rule for that reason alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.config.load import load
from penstock.executor import app
from penstock.executor.host import resources


def main() -> None:
    resources._busy_seconds = lambda: 0.0
    app.run(load(Path(sys.argv[1])))


if __name__ == "__main__":
    main()

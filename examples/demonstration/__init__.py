"""The parts of `make demo`: installation, load, kills, audit, report, picture."""

import logging

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs each font that it tries

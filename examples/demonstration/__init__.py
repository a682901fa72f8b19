"""The parts of `make demo`: stage, load, kills, audit, report, picture."""

import logging

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of the fonts that it looks for

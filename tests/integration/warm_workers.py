"""A warm parent for tests: the worker's modules and the sample jobs imported, no Spark."""

from __future__ import annotations

import logging
import sys

from tests.integration import sample_jobs

from penstock.worker import app
from penstock.worker.warm_parent import parent

if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level="INFO")
    assert sample_jobs.note
    sys.exit(parent.main(entry=app.main))

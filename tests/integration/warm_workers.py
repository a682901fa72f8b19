"""A warm parent for tests: the worker's modules and the sample jobs imported, no Spark."""

from __future__ import annotations

import logging
import sys

from tests.integration import sample_jobs

from penstock.worker import process, zygote

if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level="INFO")
    assert sample_jobs.note
    sys.exit(zygote.main(entry=process.main))

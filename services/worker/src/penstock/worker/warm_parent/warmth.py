"""What a warm parent does before its first fork, and what a fork does first."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

from penstock.runtime.workers.warm_parent_protocol import Ready

log = logging.getLogger("penstock.worker.warm_parent")

HEAVY = (
    "asyncio",
    "uvloop",
    "nats",
    "datasketches",
    "opentelemetry.sdk.trace",
    "penstock.bus.nats",
    "penstock.worker.app",
)
"""Imported once, here, instead of in each worker."""

SPARK = (
    "penstock.worker.spark.session",
    "grpc",
    "grpc._channel",  # grpc itself waits with this one until the first call
    "pandas",
    "pyarrow",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.functions",
)
"""The same where Spark is installed: 1.5 s and 100 MB less in each worker."""

SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    # pyarrow's allocator starts a thread when it is imported
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Keeps libraries from starting threads while they are imported; the operator's own values win."""


def warm_up(modules: tuple[str, ...]) -> Ready:
    """Imports what is heavy, then the authors' ``modules``; what fails is reported, not fatal."""
    began = time.monotonic()
    for name, value in SINGLE_THREADED.items():
        os.environ.setdefault(name, value)
    heavy = (*HEAVY, *SPARK) if find_spec("pyspark") else HEAVY
    failures = {m: text for m in (*heavy, *modules) if (text := _import(m))}
    gc.collect()
    gc.freeze()  # a collection in a worker must not touch, and so copy, the parent's pages
    ready = Ready(
        pid=os.getpid(),
        seconds=time.monotonic() - began,
        failures=failures,
        threads=tuple(_threads()),
    )
    _log(ready)
    return ready


def after_fork() -> None:
    """Gives a fork random numbers of its own (`random` and `uuid_utils` do that themselves)."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def _import(module: str) -> str:
    """Why a module cannot be imported; empty when it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # pyspark's about pandas 3
            importlib.import_module(module)
    except (Exception, SystemExit) as error:
        log.error("module %s cannot be imported: %s", module, error, exc_info=error)
        return f"{type(error).__name__}: {error}"
    return ""


def _threads() -> list[str]:
    return [
        (task / "comm").read_text().strip()
        for task in Path("/proc/self/task").iterdir()
        if task.name != str(os.getpid())
    ]


def _log(ready: Ready) -> None:
    log.info("warm after %.2f s, %d modules failed", ready.seconds, len(ready.failures))
    if ready.threads:
        log.warning(
            "importing started threads (%s): workers are forked without them and may hang; "
            "start threads inside jobs, not when a module is imported",
            ", ".join(ready.threads),
        )

"""What a warm parent does before its first fork, and what a fork does first."""

from __future__ import annotations

import gc
import importlib
import inspect
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from penstock.jobs import registry
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
"""The same where Spark is installed and jobs may ask for it: 1.5 s and 100 MB less in each worker
that uses Spark, 105 MB more on a host whose workers do not.
"""

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
    """Imports what is heavy and the authors' ``modules``; what fails is reported, not fatal."""
    began = time.monotonic()
    for name, value in SINGLE_THREADED.items():
        os.environ.setdefault(name, value)
    failures = _import_all((*HEAVY, *modules))
    if find_spec("pyspark") and _may_use_spark(modules):
        failures |= _import_all(SPARK)
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


def _may_use_spark(modules: tuple[str, ...]) -> bool:
    """Whether the source of a module of jobs has the word, or cannot be read.

    A job that gets at Spark by a module in which no job is imports it when it asks for it.
    """
    names = {*modules, *(kind.function.__module__ for kind in registry.REGISTRY.values())}
    try:
        sources = [inspect.getsource(sys.modules[name]) for name in names if name in sys.modules]
    except (OSError, TypeError):
        return True
    return "pyspark" in sys.modules or any("spark" in source.lower() for source in sources)


def _import_all(modules: Iterable[str]) -> dict[str, str]:
    """By module, why it cannot be imported."""
    return {module: error for module in modules if (error := _import(module))}


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

"""The settings that a configured data pipeline adds: its module of jobs, and its pool."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.config.profiles import PoolTable
from penstock.config.settings import Settings

PIPELINE_JOBS = "penstock.jobs.pipeline"
PIPELINE_QUEUE = "pipeline"
_POOL = PoolTable(kind="exclusive", memory_bytes=200_000_000, cpu_cores=1.0)
"""The pool of its worker; Spark, which runs only during such a job, takes memory beside it."""


def with_pipeline(settings: Settings) -> Settings:
    """The settings with the pipeline's module and pool, where they ask for it and lack them."""
    if not settings.pipeline.lake:
        return settings
    modules, pools = settings.jobs.modules, settings.pools
    if PIPELINE_JOBS not in modules:
        modules = (*modules, PIPELINE_JOBS)
    if not any(PIPELINE_QUEUE in (table.queues or (name,)) for name, table in pools.items()):
        pool = replace(_POOL, jobs_memory_bytes=settings.pipeline.memory_bytes)
        pools = {**pools, PIPELINE_QUEUE: pool}
    return replace(settings, jobs=replace(settings.jobs, modules=modules), pools=pools)

"""What of the settings a worker is started with, as a digest. Pure.

A worker keeps its settings until it ends. After a reload of the settings the executor replaces the
workers that a start now would give other settings, and no others.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from penstock.config import Settings
from penstock.config.profiles import Pool
from penstock.config.topology import pools, with_lanes

_SECTIONS: Final = ("dispatch", "encryption", "logs", "pipeline", "spark")
"""Sections that a worker, or the client of its jobs, reads."""
_OF_POOL: Final = ("kind", "queues", "slots")
_OF_FOREIGN: Final = ("command", "drain", "environment", "slots", "source", "source_queues")
_OF_PROFILE: Final = (
    "tries",
    "timeout_seconds",
    "limit_memory_bytes",
    "limit_job_memory_bytes",
    "limit_job_cpu_seconds",
    "nice",
    "limit_jobs",
    "limit_seconds",
    "middleware",
)
"""Not ``sla_seconds``: a job in progress is not to be cut off because its pool's promise changed,
and what else is in a profile is read by the decider alone."""


def digests(settings: Settings) -> dict[str, str]:
    """By pool, a digest that differs where a worker would be started with other settings.

    ``jobs.modules`` does not count: job code changes by ``penstock reload``.
    """
    configured = pools(settings)
    return {name: _digest(settings, pool, configured) for name, pool in configured.items()}


def _digest(settings: Settings, pool: Pool, configured: dict[str, Pool]) -> str:
    if pool.is_foreign:
        values: list[Any] = [getattr(pool, name) for name in _OF_FOREIGN]
        return _hashed([*values, pool.profile.nice])
    values = [
        [getattr(pool, name) for name in _OF_POOL],
        [getattr(pool.profile, name) for name in _OF_PROFILE],
        [getattr(settings, name) for name in _SECTIONS],
        msgspec.structs.replace(settings.jobs, modules=()),
        [settings.host.drain_seconds, settings.host.lease_seconds],
        sorted(with_lanes(settings)),
        _discovered(settings, configured) if pool.name == settings.default_pool else None,
    ]
    return _hashed(values)


def _hashed(values: list[Any]) -> str:
    text = msgspec.json.encode(msgspec.to_builtins(values), order="sorted")
    return blake2b(text, digest_size=10).hexdigest()


def _discovered(settings: Settings, configured: dict[str, Pool]) -> list[list[str]]:
    """What decides which queues the default pool takes beside its own."""
    named = {queue for pool in configured.values() for queue in pool.queues}
    return [sorted(named), sorted(settings.excluded)]

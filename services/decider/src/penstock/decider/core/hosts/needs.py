"""What one worker of each pool needs, as it was measured or as the settings say."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from penstock.config import Pool
from penstock.decider.core.hosts.capacity import Need, limits, worker_need
from penstock.decider.core.hosts.liveness import HostLiveness
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.state import PoolState
from penstock.events.snapshot import HostSnapshot


class Needs:
    """The needs of one worker of each pool, in one round.

    A measure that fits on no host, even if none of our workers ran there, proves nothing about the
    next worker: it was forged, or the last worker leaked until it was ended. One worker is then
    tried with the configured need, as nothing else can measure anew.

    Attributes:
        most_started_bytes: that any host has for new workers.
    """

    def __init__(self, hosts: HostLiveness, inputs: Inputs) -> None:
        self._inputs, self._measured = inputs, dict[str, Need]()
        measured, rules = inputs.measured_hosts, inputs.rules
        bounds = [limits(measured[host].snapshot, rules) for host in hosts.fresh]
        self.most_started_bytes = max([host.start.memory_bytes for host in bounds], default=inf)
        kept = [max(host.start.memory_bytes, host.keep_bytes) for host in bounds]
        self._most_kept = max(kept, default=inf)

    def of(self, pool: Pool, remembered: PoolState) -> Need:
        measured = self.measured(pool)
        # as nearly always; no more than is kept
        if measured.memory_bytes <= self.most_started_bytes:
            return measured
        return self._configured(pool) if self.is_trial(pool, remembered) else measured

    def is_trial(self, pool: Pool, remembered: PoolState) -> bool:
        """Whether its measured need fits nowhere, and its configured need is less."""
        measured = self.measured(pool).memory_bytes
        most = self._most_kept if remembered.workers else self.most_started_bytes
        return measured > most and self._configured(pool).memory_bytes < measured

    def measured(self, pool: Pool) -> Need:
        """By its last snapshot; by the settings where that says nothing."""
        need = self._measured.get(pool.name)
        if need is None:
            measurement = self._inputs.measured_pools.get(pool.name)
            snapshot = measurement.snapshot if measurement else None
            hosts = self._hosts() if pool.profile.jobs_memory_bytes else ()
            need = self._measured[pool.name] = worker_need(snapshot, pool.profile, hosts)
        return need

    def _configured(self, pool: Pool) -> Need:
        return worker_need(None, pool.profile, self._hosts())

    def _hosts(self) -> Iterator[HostSnapshot]:
        return (host.snapshot for host in self._inputs.measured_hosts.values())

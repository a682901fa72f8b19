"""Everything that overview and pools show, as it was at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.config import Settings
from penstock.config.profiles import Pool
from penstock.config.topology import pools
from penstock.console.core.queue_rows import QueueStateRow
from penstock.console.past.job_counts import JobCounts
from penstock.console.past.places import Place
from penstock.console.read_models.present import Present
from penstock.console.read_models.projection import Standing
from penstock.views.live_workers import WorkerRow
from penstock.views.pool_board import Board, HostRow, PoolRow


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """An installation at a moment; offers what :class:`Present` offers of now.

    Attributes:
        moment: that was asked for.
        events: the last event by then.
        board: snapshots, decisions and orders by then.
        settings: pools and promises, those of now.
        jobs: how many there were in each state.
        paused: queues that were paused.
        standing: what the answer rests on.
    """

    moment: datetime
    events: Place
    board: Board
    settings: Settings
    jobs: JobCounts
    paused: Mapping[str, QueueStateRow]
    standing: Standing

    @property
    def pools(self) -> dict[str, Pool]:
        """The configured pools, by name."""
        return pools(self.settings)

    def pool_rows(self) -> list[PoolRow]:
        """A row for each configured pool."""
        lease_seconds = self.settings.host.lease_seconds
        return self.board.pool_rows(self.pools.values(), lease_seconds, self.moment)

    def host_rows(self) -> list[HostRow]:
        """A row for each host that had a snapshot by then."""
        return self.board.host_rows(self.settings.host.lease_seconds, self.moment)

    def worker_rows(self) -> list[WorkerRow]:
        """None: reports of workers are not stored."""
        return []


View = Present | Past

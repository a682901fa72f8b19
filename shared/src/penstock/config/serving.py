"""The pool that serves a queue, or the reason why none does. Pure.

Jobs on a queue that no pool takes are kept, and wait until one does.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.config.settings import Settings
from penstock.config.topology import PRIORITIES, in_lane, is_excluded


class Serving(msgspec.Struct, frozen=True):
    """The queues of an installation, by the pools that take them.

    Attributes:
        owners: name of the pool of each queue that a pool names, lanes of priorities included.
    """

    settings: Settings
    owners: Mapping[str, str]

    @property
    def is_known(self) -> bool:
        """False where the settings name no pool, as those of a mere client may."""
        return bool(self.settings.pools)

    def pool(self, queue: str) -> str:
        """The pool that takes the jobs of this queue; empty for none."""
        if is_excluded(self.settings, queue):
            return ""
        return self.owners.get(queue, self.settings.default_pool)

    def is_discovered(self, queue: str) -> bool:
        """Whether the default pool takes it, since no pool names it."""
        return queue not in self.owners and bool(self.pool(queue))

    def why_not(self, queue: str) -> str:
        """Why no pool takes this queue's jobs, and what to do; empty where one does."""
        if is_excluded(self.settings, queue):
            return (
                "the setting 'excluded' names it; its jobs wait for 'penstock worker --queue "
                f"{queue}', or until that is changed"
            )
        if self.pool(queue):
            return ""
        names = sorted(self.owners) or ["no jobs"]
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        return (
            f"no pool takes it (pools take {shown}); its jobs wait until one does: name it in "
            "'queues' of a pool, or set default_pool"
        )


def serving(settings: Settings) -> Serving:
    """The same for settings that need not be a valid topology."""
    owners: dict[str, str] = {}
    for name, table in settings.pools.items():
        if table.kind == "spark" or table.command or table.source:
            continue
        for queue in table.queues or (name,):
            lanes = PRIORITIES if table.priorities else PRIORITIES[1:2]
            owners |= {in_lane(queue, lane): name for lane in lanes}
    return Serving(settings, owners)

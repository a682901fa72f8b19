"""Jobs that make no progress though their worker lives, as the executors see them."""

from __future__ import annotations

import msgspec
from litestar.exceptions import PermissionDeniedException

from penstock.console.access.rights import NOT_READABLE
from penstock.console.api.endpoint import Routes, read
from penstock.console.parts import Console
from penstock.console.read_models.projection import Standing
from penstock.events.envelope import new_id
from penstock.events.recovering import RecoverAsked, Suspect
from penstock.operations.recovering import recover_on_hosts


class StuckAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Stuck jobs, worst first.

    Attributes:
        silent_hosts: that did not answer within two seconds.
    """

    items: list[Suspect]
    silent_hosts: list[str]
    standing: Standing


async def ask(console: Console, order: RecoverAsked) -> StuckAnswer:
    """Sends a request to the executors of all hosts. Raises BusError."""
    suspects, silent = await recover_on_hosts(console.bus, console.subjects, order)
    return StuckAnswer(items=suspects, silent_hosts=sorted(silent), standing=console.standing)


def looking(console: Console) -> RecoverAsked:
    """A request that only looks."""
    threshold = console.present.settings.stuck.threshold
    return RecoverAsked(answer_to=new_id(), threshold=threshold)


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/stuck")
    async def stuck() -> StuckAnswer:
        """Jobs that make no progress, with the evidence; each host is asked."""
        if console.control.rights.has_reader_key:  # who may ask hosts may have them recover, too
            raise PermissionDeniedException(NOT_READABLE)
        return await ask(console, looking(console))

    return (stuck,)

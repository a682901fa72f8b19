"""Jobs: values for their filter, and how far one got that goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter

from penstock.console.api.access.caller import AnyRequest
from penstock.console.api.argument_search import check_names
from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.core.job_query import MAX_TEXT_LENGTH
from penstock.console.parts import Console
from penstock.console.read_models import suggestions
from penstock.console.read_models.store import Snapshot
from penstock.console.read_models.summaries import tag_items
from penstock.console.web.access import PRINCIPAL, ChangesWith
from penstock.console.web.acting import check_limits
from penstock.events.subjects import check_name
from penstock.jobs.running.checkpoints import Checkpoint

Field = Literal["queue", "function", "tag", "argument"]
_VALUES: Mapping[str, Callable[[Snapshot, str], list[str]]] = {
    "queue": suggestions.queues,
    "function": suggestions.functions,
}
Beginning = Annotated[str, QueryParameter(max_length=MAX_TEXT_LENGTH, description="How it begins.")]

ArgumentName = Annotated[str, QueryParameter(max_length=MAX_TEXT_LENGTH, description="Its name.")]


class CheckpointItem(msgspec.Struct, frozen=True, kw_only=True):
    """What a job goes on from on another worker; what it holds is not shown.

    Attributes:
        token: fencing token of the attempt that saved it: sequence of its start.
        bytes: of the data.
        has_more_work: False where only the job's end was not recorded.
    """

    sequence: int
    saved_at: datetime
    token: int
    bytes: int
    has_more_work: bool


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/jobs/suggest", source=ChangesWith.LOG)
    async def suggest(
        request: AnyRequest,
        field: FromQuery[Field],
        prefix: Beginning = "",
        name: ArgumentName = "",
    ) -> Listing[str]:
        """Up to 20 values of a field that begin so, for a filter of jobs.

        Those of an `argument`, by its `name`, need the scope `payload`.
        """
        if field == "argument":
            principal = request.scope["state"][PRINCIPAL]
            check_names(console, principal, [name])
            check_limits(principal)
            return whole(
                console, await console.read(lambda rows: suggestions.arguments(rows, name, prefix))
            )
        if field == "tag":
            items = await console.read_once(tag_items)
            return whole(console, suggestions.tags(items, prefix))
        values = _VALUES[field]
        return whole(console, await console.read(lambda rows: values(rows, prefix)))

    @read("/jobs/{job_id:str}/checkpoints")
    async def checkpoints(job_id: FromPath[str]) -> Listing[CheckpointItem]:
        """The checkpoint of a job: none, or the last one that it saved."""
        check_name("job", job_id)
        subjects = console.subjects
        stream = subjects.checkpoints_stream
        stored = await console.readable.read(
            stream, partial(console.bus.last, stream, subjects.checkpoint(job_id))
        )
        if stored is None:
            if await console.bus.last(subjects.events_stream, subjects.job(job_id)) is None:
                raise NotFoundException(f"there is no job {job_id!r}, or not any more")
            return whole(console, [])
        try:
            saved = msgspec.msgpack.decode(stored.body, type=Checkpoint)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise NotFoundException(f"the checkpoint of job {job_id!r} cannot be read") from None
        item = CheckpointItem(
            sequence=stored.sequence,
            saved_at=stored.at,
            token=saved.token,
            bytes=len(saved.data),
            has_more_work=saved.has_more_work,
        )
        return whole(console, [item])

    return suggest, checkpoints

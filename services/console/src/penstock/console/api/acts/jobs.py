"""Acts on single jobs, dead letters and stuck jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from litestar.params import FromPath, JSONBody

from penstock.console.api.acts.receipt import (
    ACCEPTED,
    ApiRequest,
    Reason,
    Receipt,
    Seconds,
    ShortText,
    client_of,
    receipt,
    target,
)
from penstock.console.api.endpoint import Routes
from penstock.console.api.stuck import StuckAnswer, ask
from penstock.console.parts import Console
from penstock.console.web.acting import act, check_limits
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.envelope import new_id
from penstock.events.job import MAX_TAG_LENGTH
from penstock.events.recovering import RecoverAsked
from penstock.jobs.registry import MAX_TAGS

Priority = Literal["low", "normal", "high"]
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TAG_LENGTH)]


class NewJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to dispatch; the worker checks its arguments.

    Attributes:
        function: registered name, such as ``shop.jobs.send_mail``.
        arguments: by the names of the function's parameters.
        id: of the caller's own; a second job with it is refused.
    """

    function: ShortText
    queue: ShortText
    arguments: dict[str, Any] = {}
    id: ShortText = ""
    delay_seconds: Seconds = 0.0
    unique_for_seconds: Seconds = 0.0
    tags: Annotated[tuple[Tag, ...], msgspec.Meta(max_length=MAX_TAGS)] = ()
    priority: Priority = "normal"


class Again(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments that are replaced when a job runs again; the others stay."""

    arguments: dict[str, Any] = {}
    reason: ShortText = ""


class Recovery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How stuck jobs are recovered: asked to stop, or their worker is killed.

    Attributes:
        strategy: ``restart`` forgets the checkpoint.
        dry_run: only look.
    """

    strategy: Literal["graceful", "checkpoint", "restart"] = "graceful"
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    queue: ShortText = ""
    dry_run: bool = False


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    async def check_queue(request: ApiRequest, job_id: str) -> None:
        """Refuses a token that is limited to other queues. Raises NotFound."""
        principal: Principal = request.scope["state"]["principal"]
        if principal.is_limited:
            queue = (await console.client.job(job_id)).record.queue
            check_limits(principal, queue=queue)

    @act("POST", "/jobs", Scope.JOBS, "job.dispatch", status_code=ACCEPTED, checks_limits=True)
    async def dispatch(request: ApiRequest, data: JSONBody[NewJob]) -> Receipt:
        """Dispatches a job; the answer names it."""
        check_limits(request.scope["state"]["principal"], queue=data.queue)
        target(request, "queue", data.queue, function=data.function)
        job_id = await client_of(console, request).dispatch_named(
            data.function,
            data.arguments,
            queue=data.queue,
            job_id=data.id,
            delay=data.delay_seconds,
            unique_for=data.unique_for_seconds,
            tags=data.tags,
            priority=data.priority,
        )
        target(request, "job", job_id, function=data.function, queue=data.queue)
        return await receipt(console, "job", job_id)

    @act(
        "POST",
        "/jobs/{job_id:str}/cancel",
        Scope.JOBS,
        "job.cancel",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def cancel(request: ApiRequest, job_id: FromPath[str], data: JSONBody[Reason]) -> Receipt:
        """Cancels a job that has not ended; one that has keeps its end."""
        await check_queue(request, target(request, "job", job_id, reason=data.reason))
        reason = data.reason or "cancelled on the console"
        await client_of(console, request).cancel(job_id, reason)
        return await receipt(console, "job", job_id)

    @act(
        "POST",
        "/jobs/{job_id:str}/retry",
        Scope.JOBS,
        "job.retry",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def retry(request: ApiRequest, job_id: FromPath[str], data: JSONBody[Again]) -> Receipt:
        """Lets a dead or cancelled job run again: a new life of the same job."""
        await check_queue(request, target(request, "job", job_id, reason=data.reason))
        await client_of(console, request).retry(job_id, data.arguments or None)
        return await receipt(console, "job", job_id)

    @act("POST", "/dead/{job_id:str}/retry", Scope.JOBS, "dead.retry", status_code=ACCEPTED)
    async def retry_dead(
        request: ApiRequest, job_id: FromPath[str], data: JSONBody[Again]
    ) -> Receipt:
        """Lets a job run again that failed for good."""
        target(request, "job", job_id, reason=data.reason)
        arguments: Mapping[str, Any] | None = data.arguments or None
        await client_of(console, request).dead.retry(job_id, arguments, data.reason)
        return await receipt(console, "job", job_id)

    @act("DELETE", "/dead/{job_id:str}", Scope.JOBS, "dead.delete", status_code=ACCEPTED)
    async def delete_dead(request: ApiRequest, job_id: FromPath[str]) -> Receipt:
        """Deletes the dead letter of a job, which stays dead."""
        target(request, "job", job_id)
        await client_of(console, request).dead.delete(job_id, "deleted on the console")
        return await receipt(console, "job", job_id)

    async def recover(data: Recovery, job_id: str = "") -> StuckAnswer:
        usual = console.present.settings.stuck.threshold
        order = RecoverAsked(
            answer_to=new_id(),
            threshold=usual if data.threshold is None else data.threshold,
            strategy="off" if data.dry_run else data.strategy,
            job_id=job_id,
            queue=data.queue,
        )
        return await ask(console, order)

    @act("POST", "/jobs/{job_id:str}/recover", Scope.JOBS, "job.recover", status_code=ACCEPTED)
    async def recover_job(
        request: ApiRequest, job_id: FromPath[str], data: JSONBody[Recovery]
    ) -> StuckAnswer:
        """Recovers a job if it is stuck; the answer says what each host did."""
        return await recover(data, target(request, "job", job_id, strategy=data.strategy))

    @act("POST", "/stuck/{job_id:str}/recover", Scope.JOBS, "job.recover", status_code=ACCEPTED)
    async def recover_stuck(
        request: ApiRequest, job_id: FromPath[str], data: JSONBody[Recovery]
    ) -> StuckAnswer:
        """Recovers one stuck job; the answer says what each host did."""
        return await recover(data, target(request, "job", job_id, strategy=data.strategy))

    @act("POST", "/recover", Scope.JOBS, "stuck.recover", status_code=ACCEPTED)
    async def recover_all(request: ApiRequest, data: JSONBody[Recovery]) -> StuckAnswer:
        """Recovers all stuck jobs, of one queue or of all; with `dry_run` only lists them."""
        if data.queue:
            target(request, "queue", data.queue, strategy=data.strategy)
        return await recover(data)

    return (
        dispatch,
        cancel,
        retry,
        retry_dead,
        delete_dead,
        recover_job,
        recover_stuck,
        recover_all,
    )

"""Starts bulk actions: a preview first, then what its reader has confirmed."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from litestar.exceptions import PermissionDeniedException
from litestar.params import JSONBody

from penstock.config.serving import serving
from penstock.config.topology import of_lane
from penstock.console.api.acts.receipt import ACCEPTED, ApiRequest, ShortText, Text
from penstock.console.api.argument_search import check_search
from penstock.console.api.bulk import BulkItem, bulk_item
from penstock.console.api.endpoint import Routes
from penstock.console.core import cursors
from penstock.console.core.bulk.verbs import MOST_IDS, Selection, selection
from penstock.console.core.job_query import BadFilter
from penstock.console.core.times import instant
from penstock.console.parts import Console
from penstock.console.read_models.bulk_selection import Example, GroupCount, Moment
from penstock.console.read_models.queues import queue_items
from penstock.console.web.acting import act, acting, check_limits
from penstock.console.web.conflict import Conflict
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.bulk import BulkStarted
from penstock.events.envelope import new_id, utc_now
from penstock.events.job import MAX_JOB_TAGS
from penstock.events.subjects import check_name
from penstock.jobs.tagging import check as check_tags

MOST_RUNNING = 20
USUAL_PER_SECOND, MOST_PER_SECOND = 100, 10_000
CONFIRMED_WITHIN = timedelta(minutes=15)
Target = Literal["jobs", "workflows", "batches", "graphs"]
OfJobs = Literal["cancel", "retry", "delete", "move", "recover", "tag", "untag"]
VerbName = OfJobs | Literal["retry-failed", "pause", "resume"]
Speed = Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_SECOND)]


class BulkInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done to which.

    Attributes:
        verb: on jobs `cancel`, `retry`, `delete` (of their dead letters), `move`, `recover` (those
            of them that are stuck), `tag` and `untag`; on workflows `cancel`, `pause` and `resume`;
            on batches `cancel` and `retry-failed`; on graphs these four.
        filter: as lists of jobs take it, such as `state:dead queue:reports`; of batches and graphs
            `state:NAME` alone.
        ids: these ones, instead of a filter.
    """

    verb: VerbName
    target: Target = "jobs"
    filter: Text = ""
    ids: Annotated[tuple[ShortText, ...], msgspec.Meta(max_length=MOST_IDS)] = ()


class NewBulk(BulkInput, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A preview that its reader has confirmed.

    Attributes:
        confirm: of the preview's answer.
        count: that the preview showed.
        title: what the action is called.
        reason: stored with the event of each that is acted on.
        per_second: that are acted on at most.
        tags: that each is given or loses, by `tag` and `untag`.
        to_queue: that each waits on then, by `move`.
    """

    confirm: Annotated[str, msgspec.Meta(max_length=500)]
    count: Annotated[int, msgspec.Meta(ge=0)]
    title: ShortText = ""
    reason: Text = ""
    per_second: Speed = USUAL_PER_SECOND
    tags: Annotated[tuple[ShortText, ...], msgspec.Meta(max_length=MAX_JOB_TAGS)] = ()
    to_queue: ShortText = ""


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an action would act on, as of one event of the log.

    Attributes:
        groups: how many of which queue, function and state; the largest 50.
        examples: the newest ten.
        confirm: to be sent with what starts the action.
        expires_at: until when it may be.
    """

    verb: str
    target: str
    filter: str
    count: int
    groups: list[GroupCount]
    examples: list[Example]
    position: int
    as_of: datetime
    confirm: str
    expires_at: datetime


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    directory = console.bulk.directory

    @act("POST", "/bulk/preview", Scope.JOBS, "bulk.preview", status_code=200, checks_limits=True)
    async def preview(request: ApiRequest, data: JSONBody[BulkInput]) -> BulkPreview:
        """What a bulk action would act on: how many, of what kinds, and some of them."""
        chosen = await _chosen(console, request, data)
        _note(request, "preview", data)
        moment = Moment(position=console.standing.position, at=console.standing.as_of or utc_now())
        counted = await console.bulk.count(chosen, moment)
        now = utc_now()
        return BulkPreview(
            verb=data.verb,
            target=data.target,
            filter=data.filter,
            count=counted.count,
            groups=counted.groups,
            examples=counted.examples,
            position=moment.position,
            as_of=moment.at,
            confirm=_seal(console, request, data, moment, counted.count),
            expires_at=now + CONFIRMED_WITHIN,
        )

    @act("POST", "/bulk", Scope.JOBS, "bulk.start", status_code=ACCEPTED, checks_limits=True)
    async def start(request: ApiRequest, data: JSONBody[NewBulk]) -> BulkItem:
        """Starts what was previewed, with its `confirm` and `count`; `/bulk/{id}` shows it."""
        chosen = await _chosen(console, request, data)
        _check_terms(console, request, data)
        moment, count = _confirmed(console, request, data)
        if count != data.count:
            raise Conflict(f"the preview counted {count:,}, and {data.count:,} were confirmed")
        running = [one for one in directory.newest_first() if not one.state.ended]
        if len(running) >= MOST_RUNNING:
            raise Conflict(f"{MOST_RUNNING} bulk actions have not ended; abort one of them")
        counted = await console.bulk.count(chosen, moment)
        if not counted.count:
            raise Conflict("none of what was previewed is as it was; preview it again")
        event = BulkStarted(
            bulk_id=new_id(),
            by=actor_of(request),
            source="console",
            verb=data.verb,
            target=data.target,
            filter=data.filter,
            ids=data.ids,
            queues=chosen.queues or (),
            position=moment.position,
            chosen_at=moment.at,
            total=counted.count,
            per_second=data.per_second,
            title=data.title,
            reason=data.reason,
            tags=data.tags,
            to_queue=data.to_queue,
        )
        terms = {"reason": data.reason, "tags": ", ".join(data.tags), "to_queue": data.to_queue}
        _note(request, event.bulk_id, data, jobs=str(counted.count), **terms)
        action = await directory.store(event, 0)
        if action is None:
            raise Conflict("the action was stored, and is not shown yet; see /bulk")
        return bulk_item(action, request.scope["state"]["principal"])

    return preview, start


async def _chosen(console: Console, request: ApiRequest, data: BulkInput) -> Selection:
    """The set of a request, within what its token may act on.

    Raises:
        BadFilter: it names what there is not.
        PermissionDeniedException: the token is limited to queues, and these have none; or it may
            not search in arguments.
    """
    principal: Principal = request.scope["state"]["principal"]
    queues: tuple[str, ...] | None = None
    if principal.is_limited:
        if data.target != "jobs":
            raise PermissionDeniedException(
                f"{principal.name} is limited to some pools or queues, and {data.target} have none"
            )
        queues = await _queues_of(console, principal)
    chosen = selection(data.target, data.verb, data.filter, data.ids, queues)
    check_search(console, principal, chosen.query)
    return chosen


def _check_terms(console: Console, request: ApiRequest, data: NewBulk) -> None:
    """What a verb needs besides its set.

    Raises:
        BadFilter: it is missing, or of another verb.
        JobRefused: it cannot be a tag.
        BadName: it cannot be a queue.
        PermissionDeniedException: the token is limited to other queues.
    """
    for name, verbs in (("tags", ("tag", "untag")), ("to_queue", ("move",))):
        if bool(getattr(data, name)) != (data.verb in verbs):
            what = "is missing" if data.verb in verbs else f"is not for {data.verb}"
            raise BadFilter(f"{name} {what}")
    if data.tags:
        check_tags(data.tags)
    if data.to_queue:
        queue = check_name("queue", data.to_queue)
        check_limits(request.scope["state"]["principal"], queue=of_lane(queue)[0])
        served = serving(console.present.settings)
        if served.is_known and (problem := served.why_not(queue)):
            raise BadFilter(f"queue {queue!r}: {problem}")


async def _queues_of(console: Console, principal: Principal) -> tuple[str, ...]:
    """Names of the queues that a limited token covers: its own, and those of its pools.

    Raises:
        PermissionDeniedException: there are none.
    """
    settings = console.present.settings
    items = await console.read(lambda rows: queue_items(rows, settings))
    served = {item.queue for item in items if item.pool in principal.pools}
    queues = tuple(sorted({*principal.queues, *served}))
    if not queues:
        raise PermissionDeniedException(f"{principal.name} is limited to pools without queues")
    return queues


def _seal(
    console: Console, request: ApiRequest, data: BulkInput, moment: Moment, count: int
) -> str:
    at_us = round(moment.at.timestamp() * 1_000_000)
    expires = round((utc_now() + CONFIRMED_WITHIN).timestamp())
    position = (moment.position, at_us, count, expires)
    return cursors.encode(position, _sealed_for(request, data), console.store.cursor_key)


def _confirmed(console: Console, request: ApiRequest, data: NewBulk) -> tuple[Moment, int]:
    """As of when the set was chosen, and how many were counted.

    Raises:
        Conflict: the confirmation is not of this request, or it is too old.
    """
    try:
        values = cursors.decode(data.confirm, _sealed_for(request, data), console.store.cursor_key)
        position, at_us, count, expires = (int(value) for value in values)
    except ValueError:
        raise Conflict("the confirmation is not one of this action; preview it again") from None
    if utc_now().timestamp() > expires:
        raise Conflict("the preview is too old; preview it again")
    return Moment(position=position, at=instant(at_us)), count


def _sealed_for(request: ApiRequest, data: BulkInput) -> str:
    """What a confirmation is bound to: the caller, and what it asked for."""
    body = msgspec.json.encode((data.verb, data.target, data.filter, data.ids))
    return f"bulk {actor_of(request)} {hashlib.sha256(body).hexdigest()}"


def actor_of(request: ApiRequest) -> str:
    principal: Principal = request.scope["state"]["principal"]
    return principal.name


def _note(request: ApiRequest, name: str, data: BulkInput, **after: str) -> None:
    noted = acting(request)
    noted.target = f"bulk:{name}"
    about = {"verb": f"{data.verb} {data.target}", "filter": data.filter or ", ".join(data.ids)}
    noted.after = {key: value for key, value in {**about, **after}.items() if value}

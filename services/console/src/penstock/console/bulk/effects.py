"""What a bulk action does to each of a part of its set."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.bus import bounded
from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.config.topology import in_lane, of_lane
from penstock.console.bulk.changes import CHANGES
from penstock.console.core.bulk.actions import Action
from penstock.console.core.bulk.verbs import Selection
from penstock.events.bulk import Refused
from penstock.events.envelope import MalformedEvent, new_id
from penstock.events.recovering import RecoverAsked
from penstock.events.subjects import BadName, Subjects
from penstock.jobs.bulk.client import BulkOutcome, Effect
from penstock.jobs.bulk.named_jobs import NamedJobs
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError, NotFound
from penstock.jobs.lifecycle import JobRecord
from penstock.operations.recovering import recover_on_hosts

_AT_ONCE = 32
_PAGE = 500
_LONGEST_TEXT = 200
_NOUNS = {"jobs": "job", "workflows": "workflow", "batches": "batch", "graphs": "graph"}
_EVENTS = {
    ("jobs", "cancel"): "JobCancelled",
    ("jobs", "retry"): "JobRevived",
    ("jobs", "move"): "JobMoved",
    ("jobs", "tag"): "JobTagged",
    ("jobs", "untag"): "JobTagged",
    ("workflows", "cancel"): "WorkflowCancelling",
    ("workflows", "pause"): "WorkflowPaused",
    ("workflows", "resume"): "WorkflowResumed",
    ("batches", "cancel"): "BatchStopping",
    ("batches", "retry-failed"): "BatchReopened",
    ("graphs", "cancel"): "GraphStopping",
    ("graphs", "retry-failed"): "GraphReopened",
    ("graphs", "pause"): "GraphPaused",
    ("graphs", "resume"): "GraphResumed",
}
"""The event that each act stores. A dead letter that is deleted has none, and is not there again;
what becomes of a stuck job is recorded by its host.
"""
CHANGED = "it has changed since the preview"


class Effects:
    """Acts for one action.

    Args:
        bus: a connection of this console.
        settings: of this process.
        action: names the person, and the moment as of which its set was chosen.
        chosen: its set.
    """

    def __init__(self, bus: Bus, settings: Settings, action: Action, chosen: Selection) -> None:
        self._settings = settings
        self._bus, self._subjects = bus, Subjects(settings.prefix)
        self._action, self._chosen = action, chosen
        self._client = Client.over(bus, settings, source=action.source)
        largest = settings.jobs.max_payload_bytes
        self._jobs = NamedJobs(bus, self._subjects, action.source, largest)
        self._reason = action.start.reason or action.start.title or "a bulk action"

    async def act(self, keys: Sequence[str]) -> list[BulkOutcome]:
        """Acts on these. Raises BusError: on some perhaps; it may be called again."""
        if self._chosen.target == "jobs":
            return await self._act_on_jobs(keys)
        return await bounded.gather(self._change, keys, _AT_ONCE)

    async def acted_on(self, after: int) -> set[str]:
        """What this action has done already, before it was interrupted, and has not counted.

        Args:
            after: event of the log up to which everything was counted.

        Returns:
            The ids of those whose events name this action.
        """
        name = _EVENTS.get((self._chosen.target, self._chosen.verb))
        if name is None:
            return set()
        stream, subject = self._subjects.events_stream, self._subjects.events("*", "*", name)
        own, acted = f'"{self._action.source}"'.encode(), set[str]()
        while page := await self._bus.history(stream, subject, _PAGE, after + 1):
            acted |= {one.subject.rsplit(".", 2)[-2] for one in page if own in one.body}
            after = page[-1].sequence
        return acted

    async def _act_on_jobs(self, keys: Sequence[str]) -> list[BulkOutcome]:
        match self._chosen.verb:
            case "cancel":
                return await self._jobs.cancel(keys, self._check, self._reason)
            case "retry":
                return await self._jobs.requeue(keys, self._check, self._reason)
            case "move":
                return await self._move(keys)
            case "tag":
                return await self._jobs.tag(keys, self._check, self._action.start.tags, ())
            case "untag":
                return await self._jobs.tag(keys, self._check, (), self._action.start.tags)
            case "recover":
                return await self._recover(keys)
        return await bounded.gather(self._delete, keys, _AT_ONCE)

    def _check(self, record: JobRecord) -> str:
        """A job is acted on in the life that was previewed, and as it was meant then."""
        if record.life_from > self._action.start.position:
            return CHANGED
        if self._chosen.names_state and record.state.value not in self._chosen.states:
            return f"{CHANGED}: it is {record.state}"
        queue, _ = of_lane(record.queue)
        allowed, named = self._chosen.queues, self._chosen.query.queue
        if (allowed is not None and queue not in allowed) or named not in ("", queue):
            return f"{CHANGED}: it is on queue {queue}"
        return ""

    async def _delete(self, job_id: str) -> BulkOutcome:
        try:
            letter = await self._client.dead.get(job_id)
            if letter.at > self._action.start.chosen_at:
                return BulkOutcome(id=job_id, effect=Effect.LEFT, text=CHANGED)
            await self._client.dead.delete(job_id, self._reason)
        except NotFound:
            return BulkOutcome(id=job_id, effect=Effect.DONE)  # it is as it was to be
        except (JobsError, BadName, MalformedEvent) as error:
            return BulkOutcome(id=job_id, effect=Effect.LEFT, text=str(error))
        return BulkOutcome(id=job_id, effect=Effect.DONE)

    async def _move(self, keys: Sequence[str]) -> list[BulkOutcome]:
        factory = self._client.dispatcher.factory
        target = self._action.start.to_queue
        has_lanes = len(factory.priority_queues(target)) > 1

        def queue_of(record: JobRecord) -> str:
            return in_lane(target, of_lane(record.queue)[1]) if has_lanes else target

        return await self._jobs.move(keys, self._check, queue_of, self._reason, factory.ring)

    async def _recover(self, keys: Sequence[str]) -> list[BulkOutcome]:
        """Their hosts judge which of them are stuck; the others go on."""
        look = RecoverAsked(answer_to=new_id(), threshold=self._settings.stuck.threshold)
        suspects, silent = await recover_on_hosts(self._bus, self._subjects, look)
        stuck = {one.job_id for one in suspects}
        unknown = f"{len(silent)} hosts did not answer whether it is stuck"

        async def recover(key: str) -> BulkOutcome:
            if key not in stuck:
                return BulkOutcome(
                    id=key, effect=Effect.LEFT, text=unknown if silent else "it is not stuck"
                )
            order = replace(look, answer_to=new_id(), strategy="graceful", job_id=key)
            recovered, _ = await recover_on_hosts(self._bus, self._subjects, order)
            if not recovered:
                return BulkOutcome(id=key, effect=Effect.LEFT, text="it is stuck no more")
            return BulkOutcome(id=key, effect=Effect.DONE)

        return await bounded.gather(recover, keys, _AT_ONCE)

    async def _change(self, key: str) -> BulkOutcome:
        _, apply = CHANGES[_NOUNS[self._chosen.target]][self._chosen.verb]
        try:
            await apply(self._client, key, self._reason)
        except (JobsError, BadName) as error:
            return BulkOutcome(id=key, effect=Effect.LEFT, text=str(error))
        return BulkOutcome(id=key, effect=Effect.DONE)


def refused(outcomes: Sequence[BulkOutcome]) -> tuple[Refused, ...]:
    """Those that were left, with short reasons that do not name them."""
    return tuple(
        Refused(id=one.id, text=one.text.replace(one.id, "…")[:_LONGEST_TEXT])
        for one in outcomes
        if one.effect is not Effect.DONE
    )

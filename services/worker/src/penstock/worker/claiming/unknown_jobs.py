"""Jobs that this worker's code does not know: handed on to workers with another version of it.

During a rolling deploy two versions of the job code run beside each other. See
``docs/decisions/0027-an-unknown-job-is-handed-on.md``.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, Delivery, PayloadTooLarge, WrongSequence
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.queues import queue_messages
from penstock.jobs.reading import handed_on
from penstock.runtime.limited_log import LimitedLog
from penstock.runtime.poison_messages import note
from penstock.worker.claiming.live_builds import LiveBuilds
from penstock.worker.claiming.postponing import Postponer
from penstock.worker.claiming.reading import Rejected, Unknown

log = logging.getLogger("penstock.worker")

GIVES_WAY = "limit: its exclusive queue holds a job for another version of the job code"

REST_SECONDS = 0.02
"""A worker that has handed a job on asks for no other for so long: it is free for the next message
at once, and would get the copy again before a worker that runs jobs asks for it."""
_AT_ONCE_SECONDS = 0.25
"""While a live worker of the pool has a build that was not tried, a job that has been unknown for
less has no pause: nats-server (2.15.1) fires no schedule sooner."""
_QUICK_SHARE, _MAX_QUICK_SECONDS = 0.4, 1.0
"""Later: the share of the time for which the job has been unknown, and the longest pause."""
_QUICK_FOR_SECONDS = 600.0
"""By then such a worker was offered the job, or runs long jobs, or does not exist."""
_PAUSE_SECONDS, _PAUSE_SHARE, _MAX_PAUSE_SECONDS = 1.0, 0.5, 60.0
"""While none has: the worker that knows the job is still to be started. The job begins later than
that by half of the time it took, at most."""
_LONGEST_SECONDS = 86_400.0
"""No job is offered for longer, whatever builds hosts report."""
_AT_ONCE = 256
_LEAST_HELD_SECONDS = 5.0
"""An exclusive queue stays with a worker for at least so long, whatever its jobs ask for."""


class HandedOn(NamedTuple):
    """What became of unknown jobs.

    Attributes:
        rejected: no worker knows them.
        failed: the broker did not take what was to be stored.
    """

    rejected: list[tuple[Delivery, Rejected]]
    failed: list[Delivery]


class UnknownJobs:
    """Hands unknown jobs on, without using up a try and behind all that wait in their queue.

    Args:
        bus: a connection.
        postponer: stores their messages again.
        builds: of the pool's live workers.
        host: of this worker.
        worker: its id.
        after_seconds: ``jobs.unknown_after_seconds``.
        give_way: ends this worker, for the reason that it is called with; None where other workers
            take jobs of the same queues beside it.
    """

    def __init__(
        self,
        bus: Bus,
        postponer: Postponer,
        builds: LiveBuilds,
        *,
        host: str,
        worker: str,
        after_seconds: float,
        give_way: Callable[[str], None] | None = None,
    ) -> None:
        self._bus, self._postponer, self._builds = bus, postponer, builds
        self._host, self._worker = host, worker
        self._after_seconds = after_seconds
        self._give_way = give_way
        self._began = time.monotonic()
        self._rests_until = 0.0
        self._log = LimitedLog(log)

    async def hand_on(self, unknown: Sequence[tuple[Delivery, Unknown]]) -> HandedOn:
        """Stores each message again, to be delivered later; acknowledges it here."""
        try:
            others = await self._builds.others()
        except BusError as error:
            log.warning("%d unknown jobs are given back: %s", len(unknown), error)
            return HandedOn([], [delivery for delivery, _ in unknown])
        outcomes = await bounded.gather(partial(self._try, others), unknown, _AT_ONCE)
        results = [(delivery, out) for (delivery, _), out in zip(unknown, outcomes, strict=True)]
        await self._bus.ack([delivery for delivery, out in results if out is None])
        return HandedOn(
            rejected=[(delivery, out) for delivery, out in results if isinstance(out, Rejected)],
            failed=[delivery for delivery, out in results if isinstance(out, BusError)],
        )

    @property
    def rest_seconds(self) -> float:
        """How long this worker is to ask for no jobs, since others know what it has handed on."""
        return max(self._rests_until - time.monotonic(), 0.0)

    async def _try(
        self, others: frozenset[str], message: tuple[Delivery, Unknown]
    ) -> Rejected | BusError | None:
        delivery, reason = message
        try:
            return await self._judge(others, delivery, reason)
        except UnreadableJob as error:
            return Rejected("malformed", str(error))
        except PayloadTooLarge as error:  # no worker could hand it on: headers are added each time
            return reason.rejected(f"it is too large to be handed on: {error}")
        except BusError as error:  # also WrongSequence: another process decides about the job
            level = logging.DEBUG if isinstance(error, WrongSequence) else logging.WARNING
            log.log(level, "job %s is given back: %s", reason.job_id, error)
            return error
        except Exception as error:  # it would end each worker that takes the message
            note(f"message {delivery.sequence} on {delivery.subject}", error)
            return Rejected("malformed", f"it cannot be handed on: {error!r}")

    async def _judge(
        self, others: frozenset[str], delivery: Delivery, reason: Unknown
    ) -> Rejected | None:
        now = self._bus.now()
        is_first = queue_messages.UNKNOWN_SINCE not in delivery.headers
        since = now if is_first else queue_messages.since(delivery, queue_messages.UNKNOWN_SINCE)
        tried = {
            self._builds.own: f"{self._host}.{self._worker}",
            **handed_on.tried(delivery.headers),
        }
        untried = others - tried.keys()
        is_over = now - since >= self._after_seconds or not reason.signature_differs
        if not (is_over or untried) and await self._is_workflow(reason.job_id):
            return reason.rejected(f"tried: {_builds(tried)}")
        if (is_over and not untried) or now - since >= max(_LONGEST_SECONDS, self._after_seconds):
            return reason.rejected(_whom(tried, untried, now - since))
        self._note(reason, untried)
        pause = pause_seconds(now - since, bool(untried), random.random())  # noqa: S311
        due = datetime.fromtimestamp(now + pause, UTC) if pause else None
        headers = {
            queue_messages.UNKNOWN_SINCE: f"{since:.3f}",
            queue_messages.UNKNOWN_TO: handed_on.listed(tried),
            **handed_on.headers(str(reason), since + self._after_seconds),
            queue_messages.AVAILABLE: (
                f"{queue_messages.since(delivery, queue_messages.AVAILABLE):.3f}"
            ),
        }
        refusal = await self._postponer.postpone(delivery, reason, due, headers, is_first)
        if untried:
            self._rests_until = time.monotonic() + REST_SECONDS
        return refusal

    async def _is_workflow(self, job_id: str) -> bool:
        """Whether it is a workflow, which is blocked where no live worker may know it."""
        record = await self._postponer.read(job_id)
        return record is not None and record.is_workflow

    def _note(self, reason: Unknown, untried: frozenset[str]) -> None:
        own = self._builds.own
        whom = f"workers with build {', '.join(sorted(untried))}" if untried else "later workers"
        self._log.write(
            logging.WARNING, str(reason),
            "job %s: %s (build %s); handed on to %s", reason.job_id, reason, own, whom,
        )  # fmt: skip
        if self._give_way and untried and time.monotonic() - self._began > _LEAST_HELD_SECONDS:
            self._give_way(GIVES_WAY)


def pause_seconds(waited_seconds: float, is_untried: bool, chance: float) -> float:
    """How long an unknown job is not offered again; 0 for not at all.

    Args:
        waited_seconds: since a worker first did not know it.
        is_untried: a live worker of the pool has a build that may know it.
        chance: in [0, 1), so that jobs that were refused together do not come back together.
    """
    if is_untried and waited_seconds < _QUICK_FOR_SECONDS:
        if waited_seconds < _AT_ONCE_SECONDS:
            return 0.0
        longest = min(waited_seconds * _QUICK_SHARE, _MAX_QUICK_SECONDS)
    else:
        longest = min(max(waited_seconds * _PAUSE_SHARE, _PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
    return longest * (1 + chance) / 2


def _whom(tried: Mapping[str, str], untried: frozenset[str], waited_seconds: float) -> str:
    others = "no live worker of its pool has another build"
    if untried:
        others = f"no worker with build {', '.join(sorted(untried))} took it"
    offered = f"offered for {waited_seconds:.0f} s (jobs.unknown_after_seconds)"
    return f"{offered}: {_builds(tried)}; {others}"


def _builds(tried: Mapping[str, str]) -> str:
    return ", ".join(f"build {build} (worker {worker})" for build, worker in tried.items())

"""Acts on schedules, queues, hosts, workers, functions, pools, bulk actions, channels, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.console.pages.acting.page_act import NEEDED_REASON, Field, PageAct
from penstock.console.web.scopes import Scope


def _schedule_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {"page": "/schedules", "noun": "schedule", "scope": Scope.SCHEDULES}
    return (
        PageAct(
            **shared,
            name="schedule.run",
            label="Run now",
            path="/schedules/{key}/run-now",
            effect="Its job is dispatched once, now, besides its ticks; also while it is paused.",
            done="Its job is dispatched.",
        ),
        PageAct(
            **shared,
            name="schedule.pause",
            label="Pause",
            path="/schedules/{key}/pause",
            effect="No tick is dispatched until it is resumed; jobs of past ticks go on.",
            done="The schedule is paused.",
        ),
        PageAct(
            **shared,
            name="schedule.resume",
            label="Resume",
            path="/schedules/{key}/resume",
            effect="Ticks are dispatched again, from the next one on.",
            done="The schedule goes on.",
        ),
    )


def _queue_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {"page": "/queues", "noun": "queue", "scope": Scope.QUEUES}
    return (
        PageAct(
            **shared,
            name="queue.pause",
            label="Pause",
            path="/queues/{key}/pause",
            effect="No worker is given a job of this queue until then, or until it is resumed. "
            "Jobs that run go on; new ones wait.",
            done="The queue is paused.",
            fields=(
                NEEDED_REASON,
                Field(
                    name="until",
                    label="For (hours)",
                    kind="hours",
                    about="Empty: until it is resumed.",
                ),
            ),
            body={},
        ),
        PageAct(
            **shared,
            name="queue.resume",
            label="Resume",
            path="/queues/{key}/resume",
            effect="Workers are given the jobs of this queue again.",
            done="The queue goes on.",
        ),
    )


def _host_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {
        "page": "/capacity/{key}",
        "noun": "host",
        "scope": Scope.QUEUES,
        "body": {},
    }
    return (
        PageAct(
            **shared,
            name="host.pause",
            label="Pause",
            path="/hosts/{key}/pause",
            effect="It keeps the workers it has and gets no more until it is resumed; one that is "
            "lost is replaced.",
            done="The host is paused.",
            fields=(NEEDED_REASON,),
        ),
        PageAct(
            **shared,
            name="host.drain",
            label="Drain",
            path="/hosts/{key}/drain",
            effect="Its workers finish their jobs and are replaced on other hosts; where none has "
            "room, jobs wait. Its executor goes on, so that the host can be resumed.",
            done="The host is being drained.",
            fields=(NEEDED_REASON,),
            is_grave=True,
        ),
        PageAct(
            **shared,
            name="host.resume",
            label="Resume",
            path="/hosts/{key}/resume",
            effect="It takes workers again.",
            done="The host is in service.",
        ),
    )


def _worker_acts() -> Sequence[PageAct]:
    return (
        PageAct(
            name="worker.drain",
            label="Drain",
            path="/workers/{key}/drain",
            page="/capacity/workers/{key}",
            noun="worker",
            scope=Scope.QUEUES,
            effect="It takes no further job, finishes those it has within host.drain_seconds, and "
            "ends. Its executor starts another worker of the pool, if one is planned here.",
            done="The worker is being drained; its page goes once it has ended.",
            fields=(NEEDED_REASON,),
            body={},
            is_grave=True,
        ),
    )


def _function_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {
        "page": "/silenced",
        "noun": "function",
        "scope": Scope.JOBS,
        "path": "/muted/{key}",
    }
    return (
        PageAct(
            **shared,
            name="function.mute",
            label="Mute this function",
            method="PUT",
            effect="Its jobs run as before. Those that fail are counted, and no more listed among "
            "failures, what needs attention and the alerts of every function; Silenced lists them.",
            done="The function is muted.",
            fields=(NEEDED_REASON,),
            body={},
        ),
        PageAct(
            **shared,
            name="function.unmute",
            label="Unmute",
            method="DELETE",
            effect="Its failures are listed again, and alerts see them.",
            done="The function is not muted any more.",
        ),
    )


def _pool_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {"page": "/pools/{key}", "noun": "pool", "scope": Scope.QUEUES}
    return (
        PageAct(
            **shared,
            name="pool.hold",
            label="Hold",
            method="PUT",
            path="/pools/{key}/hold",
            effect="Its number of workers is kept within these bounds until then, and each "
            "decision names the hold. It replaces a hold that is there.",
            done="The pool is held; its next decision names the hold.",
            fields=(
                Field(name="at_least", label="At least (workers)", kind="whole"),
                Field(name="at_most", label="At most (workers)", kind="whole"),
                Field(name="until", label="For (hours)", kind="hours", value="2", is_required=True),
                NEEDED_REASON,
            ),
            body={},
        ),
        PageAct(
            **shared,
            name="pool.release",
            label="Release",
            method="DELETE",
            path="/pools/{key}/hold",
            effect="The hold ends: the pool is scaled by its settings again.",
            done="The hold has ended.",
        ),
    )


def _bulk_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {
        "page": "/bulk/{key}",
        "noun": "bulk action",
        "scope": Scope.JOBS,
        "body": {},
    }
    return (
        PageAct(
            **shared,
            name="bulk.pause",
            label="Pause",
            path="/bulk/{key}/pause",
            effect="No further job is acted on until it is resumed.",
            done="The action is paused.",
        ),
        PageAct(
            **shared,
            name="bulk.resume",
            label="Resume",
            path="/bulk/{key}/resume",
            effect="It goes on where it was paused.",
            done="The action goes on.",
        ),
        PageAct(
            **shared,
            name="bulk.abort",
            label="End it",
            path="/bulk/{key}/abort",
            effect="No further job is acted on; what was done stays.",
            done="The action has ended.",
            is_grave=True,
        ),
    )


def _alert_acts() -> Sequence[PageAct]:
    shared: dict[str, Any] = {"label": "Send a test", "scope": Scope.ALERTS}
    of_rule: dict[str, Any] = {"noun": "rule", "scope": Scope.ALERTS}
    return (
        PageAct(
            **of_rule,
            name="alert.rule.toggle",
            label="Switch on or off",
            path="/alerts/rules/{key}/toggle",
            page="/alerts/rules/{key}",
            effect="A rule that is on is not judged any more, and its alerts end; one that is off "
            "is judged again.",
            done="The rule is switched.",
        ),
        PageAct(
            **of_rule,
            name="alert.rule.remove",
            label="Remove",
            method="DELETE",
            path="/alerts/rules/{key}",
            page="/alerts/rules",
            effect="The rule is removed for all, and its alerts end. What it reported stays in the "
            "history; to have it back it must be made again.",
            done="The rule is removed.",
            is_grave=True,
        ),
        PageAct(
            **shared,
            name="alert.channel.test",
            path="/alerts/channels/{key}/test",
            page="/alerts/channels",
            noun="channel",
            effect="A message that says it is a test is sent to this channel, now.",
            done="The test was sent, and the receiver took it.",
        ),
        PageAct(
            **shared,
            name="alert.rule.test",
            path="/alerts/rules/{key}/test",
            page="/alerts/rules/{key}",
            noun="rule",
            effect="A message that says it is a test is sent to the first channels of this rule.",
            done="The test was sent, and each receiver took it.",
        ),
    )


PLATFORM_ACTS = (
    *_alert_acts(),
    *_bulk_acts(),
    *_schedule_acts(),
    *_queue_acts(),
    *_pool_acts(),
    *_function_acts(),
    *_host_acts(),
    *_worker_acts(),
)

"""What is known of the consumers of some libraries: their sign of readiness, signals and flags.

Read in the sources of Celery 5.7, RQ 3.0, arq 0.28 and Dramatiq 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from penstock.config.foreign import Drain

PresetName = Literal["", "celery", "rq", "arq", "dramatiq"]


class Flags:
    """The options of a command line, as these libraries read them.

    Args:
        words: the command.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def value(self, *names: str) -> str | None:
        """The value of an option by any of its names; empty for one without, None where absent."""
        for place, word in enumerate(self._words):
            for name in names:
                if word == name:
                    return self._words[place + 1] if place + 1 < len(self._words) else ""
                if name.startswith("--") and word.startswith(f"{name}="):
                    return word.removeprefix(f"{name}=")
                if not name.startswith("--") and word.startswith(name) and word[1:2] != "-":
                    return word.removeprefix(name)
        return None

    def has(self, *names: str) -> bool:
        return self.value(*names) is not None


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One library.

    Attributes:
        ready: its sign, where the pool names none.
        drain: how it ends, where the pool does not say.
        faults: what flags of the command will not do as was hoped; takes them, the slots of the
            pool and whether the sign of this preset is awaited.
        takes_patterns: its command line takes patterns of queues.
    """

    ready: str
    drain: Drain
    faults: Callable[[Flags, int, bool], Iterator[str]]
    takes_patterns: bool = False


def faults(name: PresetName, command: Sequence[str], slots: int, ready: str) -> Iterator[str]:
    """What will not work as was hoped in a pool with this preset, for people.

    Args:
        slots: of the pool.
        ready: of the pool, the preset worked in.
    """
    if preset := PRESETS.get(name):
        if not any(PurePosixPath(word).name == name for word in command):
            yield f"command does not run {name}, as preset = {name!r} has it"
        yield from preset.faults(Flags(command), slots, ready == preset.ready)


def _celery(flags: Flags, slots: int, awaits_line: bool) -> Iterator[str]:
    if awaits_line and (flags.value("-l", "--loglevel") or "").lower() not in ("info", "debug"):
        yield "Celery prints its line of readiness at level INFO only: add '-l', 'INFO'"
    if flags.value("--prefetch-multiplier") != "1":
        yield (
            "Celery takes four messages a process in advance, which wait behind a long one while "
            "other workers idle, and are handled before it ends: add '--prefetch-multiplier=1'"
        )
    if flags.value("-c", "--concurrency") != str(slots):
        yield f"slots = {slots}: have Celery run as many processes, add '-c', '{slots}'"
    if "{worker}" not in (flags.value("-n", "--hostname") or ""):
        yield "two workers of a host would have one node name: add '-n', '{worker}@%h'"
    if flags.has("--autoscale"):
        yield "--autoscale adds processes by itself, beside the workers that are counted: remove it"
    if flags.has("-D", "--detach"):
        yield "--detach leaves a process that counts as ended: remove it"
    if flags.has("-B", "--beat"):
        yield "--beat schedules periodic tasks once in each worker: run one beat by itself"


def _rq(flags: Flags, slots: int, _: bool) -> Iterator[str]:
    if slots != 1:
        yield f"slots = {slots}, but a worker of RQ runs one job at a time: remove slots"
    if flags.has("-b", "--burst"):
        yield "--burst ends a worker when its queues are empty, and it is started again: remove it"
    if flags.has("-n", "--name") and "{worker}" not in (flags.value("-n", "--name") or ""):
        yield "RQ refuses a second worker of one name: use '-n', '{worker}'"


def _arq(flags: Flags, _: int, __: bool) -> Iterator[str]:
    if flags.has("--burst"):
        yield "--burst ends a worker when its queue is empty, and it is started again: remove it"
    if flags.has("--watch"):
        yield "--watch restarts its worker by itself, in the middle of jobs: remove it"


def _dramatiq(flags: Flags, slots: int, _: bool) -> Iterator[str]:
    processes, threads = flags.value("-p", "--processes"), flags.value("-t", "--threads")
    if processes != "1" or threads != str(slots):
        yield (
            f"slots = {slots}, but Dramatiq runs a process for each core with eight threads each: "
            f"add '-p', '1', '-t', '{slots}'"
        )
    if flags.has("--watch"):
        yield "--watch restarts its processes by itself: remove it"


PRESETS: Mapping[str, Preset] = {
    "celery": Preset(
        ready="log:@.+ ready",
        drain=Drain(signal="TERM", seconds=60, then="QUIT"),
        faults=_celery,
    ),
    "rq": Preset(
        ready="log:Listening on",
        drain=Drain(signal="TERM", seconds=60, then="TERM"),  # the second ends the job, in order
        faults=_rq,
    ),
    "arq": Preset(
        ready="log:Starting worker for",
        drain=Drain(signal="TERM", seconds=60),
        faults=_arq,
    ),
    "dramatiq": Preset(
        ready="log:Worker process is ready for action",
        drain=Drain(signal="TERM", seconds=60),
        faults=_dramatiq,
    ),
}
"""By name."""

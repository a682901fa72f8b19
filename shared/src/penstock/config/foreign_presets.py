"""What is known of the consumers of some libraries: their sign of readiness, signals and flags.

Read in the sources of Celery 5.7, RQ 3.0, arq 0.28, Dramatiq 2.2, procrastinate 3.10, Laravel 8 to
12 (``src/Illuminate/Queue/Worker.php`` and ``Console/WorkCommand.php``) and Sidekiq 6 and 7
(``lib/sidekiq/cli.rb`` and ``launcher.rb``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from penstock.config.foreign import Drain

PresetName = Literal[
    "", "celery", "rq", "arq", "dramatiq", "procrastinate", "laravel", "sidekiq", "kafka"
]


class Flags:
    """The options of a command line, as these libraries read them.

    Args:
        words: the command.

    Attributes:
        words: as given.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def value(self, *names: str) -> str | None:
        """The value of an option by any of its names; empty for one without, None where absent."""
        for place, word in enumerate(self.words):
            for name in names:
                if word == name:
                    return self.words[place + 1] if place + 1 < len(self.words) else ""
                if name.startswith("--") and word.startswith(f"{name}="):
                    return word.removeprefix(f"{name}=")
                if not name.startswith("--") and word.startswith(name) and word[1:2] != "-":
                    return word.removeprefix(name)
        return None

    def has(self, *names: str) -> bool:
        return self.value(*names) is not None

    def has_word(self, word: str) -> bool:
        """Whether the command names this, such as a subcommand."""
        return word in self.words


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How a pool uses a command.

    Attributes:
        slots: of the pool.
        drain_seconds: that a process has to finish what it handles.
        awaits_sign: whether the sign of readiness is that of the preset.
        queues: number of the pool's queues.
        queue_names: by which the pool is scaled; empty where it is not, or by a pattern.
    """

    slots: int = 1
    drain_seconds: float = 60.0
    awaits_sign: bool = True
    queues: int = 1
    queue_names: tuple[str, ...] = ()


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One library.

    Attributes:
        ready: its sign, where the pool names none.
        drain: how it ends, where the pool does not say.
        faults: what flags of the command will not do as was hoped.
        program: that a command of it names; empty for any.
        takes_patterns: its command line takes patterns of queues.
    """

    ready: str
    drain: Drain
    faults: Callable[[Flags, Usage], Iterator[str]]
    program: str
    takes_patterns: bool = False


def faults(name: PresetName, command: Sequence[str], usage: Usage) -> Iterator[str]:
    """What will not work as was hoped in a pool with this preset, for people."""
    if preset := PRESETS.get(name):
        program = preset.program
        if program and not any(PurePosixPath(word).name == program for word in command):
            yield f"command does not run {program}, as preset = {name!r} has it"
        yield from preset.faults(Flags(command), usage)


def _celery(flags: Flags, usage: Usage) -> Iterator[str]:
    slots = usage.slots
    queues = flags.value("-Q", "--queues")
    if queues is None and usage.queue_names:
        yield (
            "without '-Q' a worker of Celery takes the queues of the application's settings, else "
            "'celery': add '-Q', '{queues}'"
        )
    elif queues is not None and (rest := _not_taken(queues.split(","), usage)):
        yield f"the command does not take {rest}: write '-Q', '{{queues}}'"
    if usage.awaits_sign and (flags.value("-l", "--loglevel") or "").lower() not in (
        "info",
        "debug",
    ):
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
    if flags.value("-P", "--pool") == "solo" and flags.has("--without-heartbeat"):
        yield (
            "on RabbitMQ a worker of '--pool solo' without heartbeats, that starts while messages "
            "wait, takes some and then none for 10 s: remove '--without-heartbeat'"
        )


def _rq(flags: Flags, usage: Usage) -> Iterator[str]:
    if rest := _not_taken(flags.words, usage):
        yield f"the command does not take {rest}: add '{{queue}}'"
    if usage.slots != 1:
        yield f"slots = {usage.slots}, but a worker of RQ runs one job at a time: remove slots"
    if flags.has("-b", "--burst"):
        yield "--burst ends a worker when its queues are empty, and it is started again: remove it"
    if flags.has("-n", "--name") and "{worker}" not in (flags.value("-n", "--name") or ""):
        yield "RQ refuses a second worker of one name: use '-n', '{worker}'"


def _arq(flags: Flags, _: Usage) -> Iterator[str]:
    if flags.has("--burst"):
        yield "--burst ends a worker when its queue is empty, and it is started again: remove it"
    if flags.has("--watch"):
        yield "--watch restarts its worker by itself, in the middle of jobs: remove it"


def _dramatiq(flags: Flags, usage: Usage) -> Iterator[str]:
    slots = usage.slots
    processes, threads = flags.value("-p", "--processes"), flags.value("-t", "--threads")
    if processes != "1" or threads != str(slots):
        yield (
            f"slots = {slots}, but Dramatiq runs a process for each core with eight threads each: "
            f"add '-p', '1', '-t', '{slots}'"
        )
    if flags.has("--watch"):
        yield "--watch restarts its processes by itself: remove it"


def _procrastinate(flags: Flags, usage: Usage) -> Iterator[str]:
    if (flags.value("-c", "--concurrency") or "1") != str(usage.slots):
        yield f"slots = {usage.slots}: have procrastinate run as many jobs, add '-c'"
    if flags.has("--one-shot"):
        yield "--one-shot ends a worker when its queues are empty, and it is started again"
    if flags.has("--no-listen-notify"):
        yield "--no-listen-notify: an idle worker sees a job up to five seconds late: remove it"
    yield from _own_timeout(
        flags.value("--shutdown-graceful-timeout"),
        usage,
        "--shutdown-graceful-timeout",
        "procrastinate waits for its jobs without end, and those that are killed at the end of "
        "the drain stay 'doing'",
    )


def _laravel(flags: Flags, usage: Usage) -> Iterator[str]:
    if usage.slots != 1:
        yield f"slots = {usage.slots}, but a worker of Laravel runs one job at a time: remove slots"
    if not flags.has_word("queue:work"):
        yield (
            "the command of a worker is 'queue:work': 'queue:listen' ends its job at a signal, and "
            "'horizon' scales workers by itself"
        )
    for flag in ("--once", "--stop-when-empty", "--max-jobs", "--max-time"):
        if flags.has(flag):
            yield f"{flag} ends a worker, and it is started again with growing pauses: remove it"
    if not flags.has("--sleep"):
        yield "an idle worker sees a job up to three seconds late: add '--sleep=1'"
    seconds = _number(flags.value("--timeout") or "60")
    if seconds is not None and seconds > usage.drain_seconds:
        yield (
            f"a job may take {seconds:g} s (--timeout), but is killed {usage.drain_seconds:g} s "
            "after a worker was asked to end: raise drain.seconds"
        )


def _sidekiq(flags: Flags, usage: Usage) -> Iterator[str]:
    if flags.value("-c", "--concurrency") != str(usage.slots):
        yield f"slots = {usage.slots}: have Sidekiq run as many threads, add '-c', '{usage.slots}'"
    yield from _own_timeout(
        flags.value("-t", "--timeout"), usage, "-t", "Sidekiq gives its jobs 25 s to end"
    )
    if usage.queues > 1 and flags.value("-q", "--queue") == "{queue}":
        yield "only the argument with {queue} is repeated for each queue: write '-q{queue}'"
    if flags.has("-d", "--daemon"):
        yield "--daemon leaves a process that counts as ended: remove it"


def _not_taken(words: Sequence[str], usage: Usage) -> str:
    """Those of the pool's queues that a command does not name; empty for none."""
    if any("{queue}" in word or "{queues}" in word for word in words):
        return ""
    return " and ".join(repr(name) for name in usage.queue_names if name not in words)


def _own_timeout(value: str | None, usage: Usage, flag: str, without: str) -> Iterator[str]:
    """Of libraries that end their jobs by themselves so long after the signal."""
    fitting = f"a little below drain.seconds, such as {usage.drain_seconds * 0.9:g}"
    if value is None:
        yield f"without {flag} {without}: add it with {fitting}"
        return
    seconds = _number(value)
    if seconds is None or not usage.drain_seconds / 2 <= seconds < usage.drain_seconds:
        yield f"{flag} {value}: expected {fitting}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


PRESETS: Mapping[str, Preset] = {
    "celery": Preset(
        ready="log:@.+ ready",
        drain=Drain(signal="TERM", seconds=60, then="QUIT"),
        faults=_celery,
        program="celery",
    ),
    "rq": Preset(
        ready="log:Listening on",
        drain=Drain(signal="TERM", seconds=60, then="TERM"),  # the second ends the job, in order
        faults=_rq,
        program="rq",
    ),
    "arq": Preset(
        ready="log:Starting worker for",
        drain=Drain(signal="TERM", seconds=60),
        faults=_arq,
        program="arq",
    ),
    "dramatiq": Preset(
        ready="log:Worker process is ready for action",
        drain=Drain(signal="TERM", seconds=60),
        faults=_dramatiq,
        program="dramatiq",
    ),
    "procrastinate": Preset(
        ready="log:Starting worker on",
        drain=Drain(signal="TERM", seconds=60),
        faults=_procrastinate,
        program="procrastinate",
    ),
    "laravel": Preset(
        ready="seconds:3",  # it prints that it begins only where stty works, never into a file
        drain=Drain(signal="TERM", seconds=60),
        faults=_laravel,
        program="artisan",
    ),
    "sidekiq": Preset(
        # TERM does what TSTP does, and ends the process then: TSTP alone would never end it.
        ready="log:Running in ",
        drain=Drain(signal="TERM", seconds=60),
        faults=_sidekiq,
        program="sidekiq",
    ),
    "kafka": Preset(
        ready="seconds:5",  # the group waits three seconds for others before it gives partitions
        drain=Drain(signal="TERM", seconds=60),
        faults=lambda flags, usage: iter(()),
        program="",
        takes_patterns=True,
    ),
}
"""By name."""

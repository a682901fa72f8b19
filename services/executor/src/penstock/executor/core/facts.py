"""What an executor can learn; what follows from it is decided in `evolve` and `reconcile`."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.events.scaling import WorkersScaled
from penstock.events.worker import Claim, WorkerReport
from penstock.executor.core.fleet import Limits


class _Fact(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Commanded(_Fact, frozen=True, kw_only=True):
    """A command arrived; it may be late, repeated, forged, or another host's.

    Attributes:
        reached: no leader's epoch lies beyond; None where no decider has led yet.
    """

    command: WorkersScaled
    reached: int | None = None


class LimitsChanged(_Fact, frozen=True, kw_only=True):
    """The settings were reloaded.

    Attributes:
        limits: what they allow now.
        commanded: workers by pool of the command that is obeyed, also of pools not known before.
    """

    limits: Limits
    commanded: dict[str, int]


class Forked(_Fact, frozen=True, kw_only=True):
    worker: str
    pid: int


class ForkFailed(_Fact, frozen=True, kw_only=True):
    """The start did not lead to a process: out of processes or memory, or the warm parent died."""

    worker: str
    error: str


class Reported(_Fact, frozen=True, kw_only=True):
    report: WorkerReport


class Exited(_Fact, frozen=True, kw_only=True):
    """A process ended.

    Attributes:
        code: as of ``waitpid``; None when it was no child of this process.
        claim: of the job that it began last.
        held: what it held; None where only its reports are known.
        begun: ids of the jobs that it ran, of a worker that runs several at a time.
        out_of_memory: the kernel ended a process for lack of memory just before.
    """

    worker: str
    code: int | None
    claim: Claim | None = None
    held: tuple[Claim, ...] | None = None
    begun: tuple[str, ...] = ()
    out_of_memory: bool = False


class Adopted(_Fact, frozen=True, kw_only=True):
    """A living worker that an earlier executor here left behind; the age is its process's.

    Attributes:
        drain_seconds: of a process of another system; None of others.
    """

    worker: str
    pool: str
    pid: int
    age_seconds: float
    drain_seconds: float | None = None


class LimitReached(_Fact, frozen=True, kw_only=True):
    """A process of another system is older or larger than its pool allows: it is replaced.

    Attributes:
        detail: what it did, for people: "used 3 GiB, …".
    """

    worker: str
    detail: str = ""


class Condemned(_Fact, frozen=True, kw_only=True):
    """A worker that can only be killed.

    Attributes:
        because: ``stuck``: its job was taken from it; ``memory-limit``: it goes with its job.
        detail: what it did, for people: "used 3 GiB, …".
    """

    worker: str
    because: Literal["stuck", "memory-limit"] = "stuck"
    detail: str = ""


class DrainRequested(_Fact, frozen=True, kw_only=True):
    """An operator asked for a worker to end after its jobs."""

    worker: str


class Computing(_Fact, frozen=True, kw_only=True):
    """A worker that cannot report was seen to use its processor."""

    worker: str


class BusChecked(_Fact, frozen=True, kw_only=True):
    """The broker answered (``up``) or did not: silence of workers means something, or nothing."""

    up: bool


class EndRequested(_Fact, frozen=True, kw_only=True):
    """This executor was asked to end."""


class PauseRequested(_Fact, frozen=True, kw_only=True):
    """This executor was asked to pause, or to go on."""

    paused: bool


class CodeReloaded(_Fact, frozen=True, kw_only=True):
    """Workers that start from now on have another version of the job code.

    Attributes:
        pools: whose workers are replaced; those of others keep their code until they end.
        only_adopted: those that this executor started have the new code already.
    """

    pools: frozenset[str]
    only_adopted: bool = False


class SettingsOutdated(_Fact, frozen=True, kw_only=True):
    """The settings were reloaded, and these workers were started with other ones."""

    workers: frozenset[str]


class Ticked(_Fact, frozen=True, kw_only=True):
    """Time passed."""


Fact = (
    Commanded
    | LimitsChanged
    | Forked
    | ForkFailed
    | Reported
    | Exited
    | Condemned
    | DrainRequested
    | LimitReached
    | Computing
    | Adopted
    | BusChecked
    | EndRequested
    | PauseRequested
    | CodeReloaded
    | SettingsOutdated
    | Ticked
)

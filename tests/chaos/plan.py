"""What happens to an installation, and when: a value made from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Kind(StrEnum):
    KILL_WORKER = "kill-worker"
    STOP_WORKER = "stop-worker"
    END_WORKER = "end-worker"
    KILL_EXECUTOR = "kill-executor"
    KILL_ORCHESTRATOR = "kill-orchestrator"
    KILL_BROKER = "kill-broker"
    FREEZE_BROKER = "freeze-broker"
    CUT_HOST = "cut-host"
    FILL_DISK = "fill-disk"
    HANG_DISK = "hang-disk"
    OPEN_BATCHES = "open-batches"
    TURN_LOG_OVER = "turn-log-over"
    SHIFT_CLOCK = "shift-clock"
    FORGE = "forge"
    DOUBLE = "double"
    REORDER = "reorder"
    CANCEL = "cancel"


ABOUT = {
    Kind.KILL_WORKER: "a worker is killed",
    Kind.STOP_WORKER: "a worker is stopped until another has taken its job over, then continued",
    Kind.END_WORKER: "a worker is asked to end",
    Kind.KILL_EXECUTOR: "an executor is killed; it is started again, as by systemd",
    Kind.KILL_ORCHESTRATOR: "an orchestrator is killed; it is started again, as by systemd",
    Kind.KILL_BROKER: "the broker is killed and started again",
    Kind.FREEZE_BROKER: "the broker is stopped until it has refused a dispatch, then continued",
    Kind.CUT_HOST: "a host's connection passes nothing until its jobs were taken over; "
    "no connection is closed",
    Kind.FILL_DISK: "the broker's disk is filled until a dispatch was refused, then has room "
    "again; nobody restarts anything but the guard of `penstock up` (needs root)",
    Kind.HANG_DISK: "writes to the broker's disk hang (fsfreeze) until a dispatch was refused and "
    "all claims have lapsed (needs root)",
    Kind.OPEN_BATCHES: "50 atomic batches are begun on the event log, as many as the broker "
    "allows, and held open while jobs go on",
    Kind.TURN_LOG_OVER: "other events fill the event log, of 4 MB, until all that it held is "
    "discarded; living jobs must still be readable",
    Kind.SHIFT_CLOCK: "the wall clock of a host or an orchestrator is set an hour ahead or back, "
    "or right again (needs a C compiler)",
    Kind.FORGE: "with the key of each role, messages that are broken, or well typed and beyond "
    "belief, on each subject that the key may publish to; the broker checks keys then",
    Kind.DOUBLE: "queue messages are stored again, of jobs that wait, run and have ended",
    Kind.REORDER: "queue messages are taken and given back in another order, some only when their "
    "claim lapses",
    Kind.CANCEL: "jobs that wait, run and have ended are cancelled",
}


class Fault(msgspec.Struct, frozen=True):
    """``after`` so many jobs have ended; ``pick`` in [0, 1) chooses among those it may befall."""

    kind: Kind
    after: int
    pick: float

    def __str__(self) -> str:
        return f"{self.kind}@{self.after}"


class Plan(msgspec.Struct, frozen=True):
    """``namespaces``: hosts are cut off by the kernel, packets are lost.

    Attributes:
        seed: of everything that is left to chance. kinds: what the faults were drawn from.
        jobs: how many are dispatched. faults: by the number of jobs after which they happen.
        workflows: random ones, beside the jobs.
    """

    seed: int
    kinds: tuple[Kind, ...]
    jobs: int
    faults: tuple[Fault, ...]
    namespaces: bool = False
    workflows: int = 0

    def __str__(self) -> str:
        where = ", hosts in namespaces" if self.namespaces else ""
        faults = " ".join(map(str, self.faults))
        workflows = f", {self.workflows} workflows" if self.workflows else ""
        return f"seed {self.seed}, {self.jobs} jobs{workflows}{where}: {faults}"

    def has(self, *kinds: Kind) -> bool:
        """Whether a fault of one of these kinds happens."""
        return any(fault.kind in kinds for fault in self.faults)

    @property
    def again(self) -> str:
        """The command that runs it alone."""
        kinds = "" if self.kinds == tuple(Kind) else f" --faults {','.join(self.kinds)}"
        where = "always" if self.namespaces else "never"
        return (
            f"python -m tests.chaos --runs 1 --seed {self.seed} --jobs {self.jobs} "
            f"--count {len(self.faults)} --workflows {self.workflows} --namespaces {where}{kinds}"
        )


def draw(
    seed: int,
    kinds: Sequence[Kind] = tuple(Kind),
    jobs: int = 300,
    faults: int = 8,
    namespaces: bool = False,
    workflows: int = 0,
) -> Plan:
    """The plan of a seed: the same for the same arguments, everywhere."""
    chance = random.Random(seed)
    drawn = sorted(
        (chance.randrange(jobs // 20, jobs * 3 // 4), chance.choice(kinds), chance.random())
        for _ in range(faults)
    )
    happen = tuple(Fault(kind, after, pick) for after, kind, pick in drawn)
    return Plan(seed, tuple(kinds), jobs, happen, namespaces, workflows)


def choose(among: Sequence[T], pick: float) -> T:
    return among[int(pick * len(among))]

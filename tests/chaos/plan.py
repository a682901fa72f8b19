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
    """Stopped until its job was taken over, then set going again."""
    END_WORKER = "end-worker"
    KILL_EXECUTOR = "kill-executor"
    KILL_ORCHESTRATOR = "kill-orchestrator"
    KILL_BROKER = "kill-broker"
    FREEZE_BROKER = "freeze-broker"
    CUT_HOST = "cut-host"
    """Its wire is cut until its jobs were taken over; no connection is closed."""
    FILL_DISK = "fill-disk"
    """The broker's, until it has refused something; then an operator makes room, restarts it."""
    DOUBLE = "double"
    """Queue messages are stored again, of jobs that wait, run and have ended."""
    REORDER = "reorder"
    """Queue messages are taken and given back in another order, some only when the claim lapses."""
    CANCEL = "cancel"


class Fault(msgspec.Struct, frozen=True):
    """``after`` so many jobs have ended; ``pick`` in [0, 1) chooses among those it may befall."""

    kind: Kind
    after: int
    pick: float

    def __str__(self) -> str:
        return f"{self.kind}@{self.after}"


class Plan(msgspec.Struct, frozen=True):
    """``namespaces``: hosts are cut off by the kernel, packets are lost."""

    seed: int
    kinds: tuple[Kind, ...]
    jobs: int
    faults: tuple[Fault, ...]
    namespaces: bool = False

    def __str__(self) -> str:
        where = ", hosts in namespaces" if self.namespaces else ""
        faults = " ".join(map(str, self.faults))
        return f"seed {self.seed}, {self.jobs} jobs{where}: {faults}"

    @property
    def again(self) -> str:
        """The command that runs it alone."""
        kinds = "" if self.kinds == tuple(Kind) else f" --faults {','.join(self.kinds)}"
        where = "always" if self.namespaces else "never"
        return (
            f"python -m tests.chaos --runs 1 --seed {self.seed} --jobs {self.jobs} "
            f"--count {len(self.faults)} --namespaces {where}{kinds}"
        )


def draw(
    seed: int,
    kinds: Sequence[Kind] = tuple(Kind),
    jobs: int = 300,
    faults: int = 8,
    namespaces: bool = False,
) -> Plan:
    """The plan of a seed: the same for the same arguments, everywhere."""
    chance = random.Random(seed)
    drawn = sorted(
        (chance.randrange(jobs // 20, jobs * 3 // 4), chance.choice(kinds), chance.random())
        for _ in range(faults)
    )
    happen = tuple(Fault(kind, after, pick) for after, kind, pick in drawn)
    return Plan(seed, tuple(kinds), jobs, happen, namespaces)


def choose(among: Sequence[T], pick: float) -> T:
    return among[int(pick * len(among))]

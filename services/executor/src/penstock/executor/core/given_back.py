"""What a worker held when its process ended: it goes back to its queues."""

from __future__ import annotations

from typing import Final

from penstock.executor.core import facts
from penstock.executor.core.cause import how_it_ended
from penstock.executor.core.fleet import Fleet
from penstock.executor.core.instruction import GiveBack, Instruction
from penstock.executor.core.worker import Worker

_ASKED_TO_END: Final = frozenset({"scaled-down", "shutdown", "reloaded", "drained"})


def give_back(fleet: Fleet, worker: Worker, fact: facts.Exited) -> list[Instruction]:
    """One that ended well settled what it had; a job that ended its process by exit code 0 did not.

    Only jobs that ran are charged with the loss: those claimed ahead of them did nothing yet.
    """
    held = worker.claims if fact.held is None else fact.held
    claims = {claim.job_id: claim.ack_subject for claim in held}
    if fact.claim and fact.held is None:  # it may have begun a job since its last report
        claims.setdefault(fact.claim.job_id, fact.claim.ack_subject)
    if not claims or (fact.code == 0 and (worker.stopping_because or fact.held is None)):
        return []
    is_blameless = _ended_late(worker) or worker.ending_because == "stuck"
    ended = how_it_ended(fact.code, fact.out_of_memory)
    if _ended_late(worker):
        ended = "did not end in time"
    elif worker.ending_because == "lost":
        ended = "gave no sign of life and was ended"
    elif worker.ending_because == "memory-limit":
        ended = f"was killed (memory-limit): it {worker.ending_detail}"
    return [
        GiveBack(
            worker=worker.name,
            ack_subjects=tuple(claims.values()),
            job_ids=tuple(claims),
            ran=() if is_blameless else ran(worker, fact),
            ended=f"worker {worker.name} on {fleet.host} {ended}",
        )
    ]


def ran(worker: Worker, fact: facts.Exited) -> tuple[str, ...]:
    """The jobs that ran when the process ended.

    Where only reports are known, the one begun last: the job's events decide whether it had ended.
    """
    if fact.begun:
        return fact.begun
    last = fact.claim.job_id if fact.claim else worker.job_id or ""
    has_ended = fact.held is not None and last not in {claim.job_id for claim in fact.held}
    # one with several slots marks what runs: the one begun last had ended when none was marked
    return () if has_ended or not last or worker.slots > 1 else (last,)


def _ended_late(worker: Worker) -> bool:
    """By this executor, after its drain deadline: its job is not to blame."""
    return worker.killed and worker.ending_because in _ASKED_TO_END

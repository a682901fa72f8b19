"""What code that is imported here would do with what a workflow has recorded. Writes nothing."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

import msgspec

from penstock.events.workflow_memo import Resolution
from penstock.jobs import registry
from penstock.jobs.errors import BadArguments, MissingKey, Undecryptable, UnknownJob, WorkflowError
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads import encryption, payload
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.coded.context import WorkflowContext
from penstock.jobs.workflows.coded.running.driver import Driver
from penstock.jobs.workflows.coded.running.nodes import Diverged
from penstock.jobs.workflows.coded.secrets import Secrets
from penstock.jobs.workflows.coded.workflow_type import WorkflowType

ReplayOutcome = Literal[
    "fits", "diverges", "no-code", "arguments", "raises", "sealed", "unreadable"
]
_STANDS = ("fits", "sealed")


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow, and what this code would do with it.

    Attributes:
        id: of the workflow.
        function: its name in messages.
        version: of the code that recorded last; 0 where that is unknown.
        by_version: of the code that was tried here; 0 where there is none.
        state: of its job.
        outcome: ``fits``; it would be blocked: ``diverges`` (the code calls something else than was
            recorded), ``no-code`` (of its function or version) or ``arguments`` (the function takes
            others than it was dispatched with); ``raises``: the code
            fails where it went on before; not checked: ``sealed`` (the key is not here), or
            ``unreadable``.
        reason: what was recorded and what the code calls; empty where it fits.
        entry: the recorded stretch at which that shows, from 1 on; 0 where it does not.
        entries: recorded stretches.
        dispatched_at: when it was dispatched.
    """

    id: str
    function: str
    version: int
    state: str
    outcome: ReplayOutcome
    dispatched_at: datetime
    by_version: int = 0
    reason: str = ""
    entry: int = 0
    entries: int = 0

    @property
    def stands(self) -> bool:
        """Whether nothing is known that speaks against this code."""
        return self.outcome in _STANDS


def replayed(
    record: JobRecord, ring: KeyRing, now: datetime, ends: Iterable[Resolution] = ()
) -> Replayed:
    """Runs the code that would go on with a workflow through what was recorded, and no further.

    Args:
        record: a workflow that has not ended.
        ring: opens what is sealed.
        now: the time that the code sees after what was recorded.
        ends: of its steps that it has not taken note of: whether the code can be given these.
    """
    recorded = record.workflow or memo.EMPTY
    judged = Replayed(
        id=record.id,
        function=record.function,
        version=record.code_version,
        state=record.state.value,
        outcome="fits",
        dispatched_at=record.dispatched_at,
        entries=len(recorded.entries),
    )
    try:
        kind = _code(record)
        call = payload.decode(record.payload)
        arguments = kind.decode(encryption.arguments(call, ring))
    except UnknownJob as error:
        return msgspec.structs.replace(judged, outcome="no-code", reason=str(error))
    except BadArguments as error:
        return msgspec.structs.replace(judged, outcome="arguments", reason=str(error))
    except (MissingKey, Undecryptable) as error:
        return msgspec.structs.replace(judged, outcome="sealed", reason=str(error))
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        return msgspec.structs.replace(judged, outcome="unreadable", reason=str(error))
    judged = msgspec.structs.replace(judged, by_version=kind.version)

    def make(driver: Driver) -> Any:
        return kind.function(WorkflowContext(driver, judged.id), **arguments)

    return _run_through(judged, Driver(make, recorded, now, Secrets(ring, call)), ends)


def _code(record: JobRecord) -> WorkflowType[Any, Any]:
    """The function that would go on with a workflow. Raises UnknownJob."""
    kind = registry.find(record.function)
    if not isinstance(kind, WorkflowType):
        raise UnknownJob(f"{record.function} is a job here, and no workflow")
    serving = kind.serving(record.code_version)
    if serving is None:
        raise UnknownJob(kind.why_not(record.code_version))
    return serving


def _run_through(judged: Replayed, driver: Driver, ends: Iterable[Resolution]) -> Replayed:
    try:
        driver.replay()
        for end in ends:
            driver.check(end)
    except Diverged as difference:
        return msgspec.structs.replace(
            judged, outcome="diverges", reason=str(difference), entry=driver.entry
        )
    except (MissingKey, Undecryptable) as error:
        return msgspec.structs.replace(judged, outcome="sealed", reason=str(error))
    except (Exception, SystemExit) as error:
        return msgspec.structs.replace(
            judged, outcome="raises", reason=_described(error), entry=driver.entry
        )
    finally:
        with suppress(WorkflowError):
            driver.close()
    return judged


def _described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"the code raises {type(error).__name__}: {error}{place}"

"""Values that are sent to a graph: whether a step waits for one. Pure."""

from __future__ import annotations

from typing import Any

from penstock.events.graph import Signal
from penstock.events.workflow_memo import MAX_SIGNAL_BYTES
from penstock.jobs.errors import JobRefused
from penstock.jobs.job_type import encode_result
from penstock.jobs.workflows import graph_waits, near_names
from penstock.jobs.workflows.graph_record import GraphRecord

_MAX_ID_LENGTH = 64


def made(name: str, value: Any, signal_id: str, *, encrypts: bool = False) -> Signal:
    """A signal of plain data.

    Args:
        name: what steps call it.
        value: of it.
        signal_id: the sender's own id; empty for none.
        encrypts: all jobs are encrypted, as far as the sender knows.

    Raises:
        JobRefused: the value cannot be sent.
    """
    if encrypts and not isinstance(value, bool | None):
        raise JobRefused(
            f"signal {name!r}: encryption.every_job is set, and the value of a graph's signal "
            "cannot be encrypted; send true, false or none"
        )
    try:
        body = encode_result(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise JobRefused(f"signal {name!r}: its value cannot be sent: {error}") from error
    if len(body) > MAX_SIGNAL_BYTES:
        raise JobRefused(f"signal {name!r}: expected a value of at most {MAX_SIGNAL_BYTES:,} bytes")
    if len(signal_id) > _MAX_ID_LENGTH:
        raise JobRefused(f"signal {name!r}: expected an id of at most {_MAX_ID_LENGTH} characters")
    return Signal(value=body, signal_id=signal_id)


def is_new(graph: GraphRecord, name: str, signal: Signal) -> bool:
    """Whether a graph is still to be sent a signal; not if it was, with the same id.

    Raises:
        JobRefused: the graph has ended; no step waits for it, or no longer; or the value is none.
    """
    about = f"graph {graph.id}"
    earlier = graph.signals.get(name)
    if earlier is not None and signal.signal_id and earlier.signal_id == signal.signal_id:
        return False
    if graph.state.ended:
        raise JobRefused(f"{about} takes no signal: it is {graph.state}")
    awaited = {step.wait.signal: at for at, step in enumerate(graph.steps) if step.wait}
    awaited.pop("", None)
    if (position := awaited.get(name)) is None:
        hint = near_names.hint(name, awaited)
        names = ", ".join(sorted(awaited)[:20]) or "none"
        raise JobRefused(f"{about} does not wait for signal {name[:80]!r}; it takes {names}{hint}")
    step = graph.steps[position]
    if earlier is not None:
        raise JobRefused(f"{about} was sent signal {name!r} already; the first counts")
    if position in graph.elapsed:
        raise JobRefused(
            f"{about} takes signal {name!r} no longer: step {step.name!r} waited until "
            f"{graph.waits[position]:%Y-%m-%d %H:%M:%S} UTC"
        )
    values = (graph_waits.APPROVED, graph_waits.REFUSED)
    if step.wait and step.wait.is_approval and signal.value not in values:
        raise JobRefused(
            f"step {step.name!r} of {about} is approved with true, or refused with false"
        )
    if not graph_waits.fits(graph, signal):
        most = graph_waits.MAX_ALL_BYTES
        raise JobRefused(f"{about}: all its signals together exceed {most:,} bytes")
    return True

"""Jobs that follow from how a batch, chain or graph ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.events.batch import Callback, Callbacks
from penstock.events.job import JobDispatched
from penstock.jobs import derived_ids
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.dispatch import job_factory
from penstock.jobs.dispatch.awaiting import Awaiting, split
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.job_type import Call, encode


def encode_callbacks(
    dispatcher: Dispatcher,
    owner: str,
    then: Call | Awaiting | None,
    catch: Call | Awaiting | None,
    finally_: Call | Awaiting | None,
) -> Callbacks:
    """Callbacks as they are stored until they are due.

    Args:
        dispatcher: encodes their calls.
        owner: id of the batch or graph they belong to.
        then: dispatched after success.
        catch: dispatched after failure.
        finally_: dispatched in any case.

    Raises:
        PayloadTooLarge, BadArguments
    """

    def encoded(which: str, callback: Call | Awaiting | None) -> Callback | None:
        if callback is None:
            return None
        call, parameters = split(callback)
        event = dispatcher.prepare(call, derived_ids.callback_id(owner, which))
        return Callback(payload=event.payload, into="".join(parameters))

    return Callbacks(
        then=encoded("then", then),
        catch=encoded("catch", catch),
        finally_=encoded("finally", finally_),
    )


def due_callbacks(
    callbacks: Callbacks, outcome: Outcome, source: str, success: bool | None, reopened: int = 0
) -> Iterator[JobDispatched]:
    """The first events of the callbacks that are due now; the same ids at each call.

    Args:
        callbacks: as they were stored.
        outcome: what they are given.
        source: what the events name as their origin.
        success: None where neither then nor catch applies (it was cancelled).
        reopened: how often the batch or graph was reopened.
    """
    due = {
        "then": callbacks.then if success is True else None,
        "catch": callbacks.catch if success is False else None,
        "finally": callbacks.finally_,
    }
    for which, callback in due.items():
        if callback is None:
            continue
        into = callback.into
        yield job_factory.from_payload(
            callback.payload,
            derived_ids.callback_id(outcome.id, which, reopened),
            source,
            correlation_id=outcome.id,
            handed={into: msgspec.Raw(encode(outcome))} if into else None,
        )

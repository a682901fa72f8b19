"""Jobs that follow from how a batch, chain or graph ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.events.batch import Callback, Callbacks
from penstock.events.job import JobDispatched
from penstock.jobs import again, derived_ids, registry
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.client import Client
from penstock.jobs.dispatch.awaiting import Awaiting, split
from penstock.jobs.registry import Call


def encode(
    client: Client,
    whole: str,
    then: Call | Awaiting | None,
    catch: Call | Awaiting | None,
    finally_: Call | Awaiting | None,
) -> Callbacks:
    """Callbacks as they are kept until they are due.

    Args:
        whole: the batch or graph they belong to.

    Raises:
        PayloadTooLarge, BadArguments
    """

    def one(which: str, wanted: Call | Awaiting | None) -> Callback | None:
        if wanted is None:
            return None
        call, parameters = split(wanted)
        event = client.prepare(call, derived_ids.callback_id(whole, which))
        return Callback(payload=event.payload, into="".join(parameters))

    return Callbacks(
        then=one("then", then), catch=one("catch", catch), finally_=one("finally", finally_)
    )


def due(
    callbacks: Callbacks, outcome: Outcome, source: str, success: bool | None, again_round: int = 0
) -> Iterator[JobDispatched]:
    """The jobs to be dispatched now; the same ones whenever it is asked.

    Args:
        success: None where neither then nor catch applies (it was cancelled).
    """
    wanted = {
        "then": callbacks.then if success is True else None,
        "catch": callbacks.catch if success is False else None,
        "finally": callbacks.finally_,
    }
    for which, callback in wanted.items():
        if callback is not None:
            yield again.dispatched(
                callback.payload,
                derived_ids.callback_id(outcome.id, which, again_round),
                source,
                correlation_id=outcome.id,
                handed={callback.into: msgspec.Raw(registry.encode(outcome))}
                if callback.into
                else None,
            )

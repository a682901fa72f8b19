"""What a bulk action may do, and to which. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.console.core.job_query import BadFilter, JobQuery
from penstock.console.core.job_query import read as read_words
from penstock.jobs.batches.batch_record import BatchState
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.graph_record import GraphState

MOST_IDS = 500
"""That are named instead of a filter."""
_ANY = tuple(state.value for state in State)
_ALIVE = tuple(state.value for state in State if not state.ended)
_ENDED_BATCH = tuple(state.value for state in BatchState if state.ended)
_STATE = "state:"


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is done to each.

    Attributes:
        states: in which it can be done.
        usual: the states that a filter without one means; all of them where it is empty.
    """

    states: tuple[str, ...]
    usual: tuple[str, ...] = ()


_DEAD, _CANCELLED = State.DEAD.value, State.CANCELLED.value
_RUNNING_GRAPH = (GraphState.RUNNING.value,)
VERBS: Mapping[str, Mapping[str, Verb]] = {
    "jobs": {
        "cancel": Verb(states=_ALIVE),
        "retry": Verb(states=(_DEAD, _CANCELLED), usual=(_DEAD,)),
        "delete": Verb(states=(_DEAD,)),
        "move": Verb(states=(State.WAITING.value, State.SCHEDULED.value, State.RETRYING.value)),
        "recover": Verb(states=(State.RUNNING.value,)),
        "tag": Verb(states=_ANY),
        "untag": Verb(states=_ANY),
    },
    "workflows": {
        "cancel": Verb(states=_ALIVE),
        "pause": Verb(states=_ALIVE),
        "resume": Verb(states=_ALIVE),
    },
    "batches": {
        "cancel": Verb(states=(BatchState.OPEN.value, BatchState.RUNNING.value)),
        "retry-failed": Verb(states=_ENDED_BATCH, usual=(BatchState.FAILED.value,)),
    },
    "graphs": {
        "cancel": Verb(states=_RUNNING_GRAPH),
        "retry-failed": Verb(
            states=(GraphState.FAILED.value, GraphState.CANCELLED.value),
            usual=(GraphState.FAILED.value,),
        ),
        "pause": Verb(states=_RUNNING_GRAPH),
        "resume": Verb(states=_RUNNING_GRAPH),
    },
}
"""By target and verb; what is done then stands in :mod:`penstock.console.bulk.effects`."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which ones are meant.

    Attributes:
        states: in one of which each is.
        query: further conditions on jobs.
        ids: the ones that are named instead of a filter; none for all that match.
        queues: the only queues whose jobs may be acted on; None for any.
    """

    target: str
    verb: str
    states: tuple[str, ...]
    query: JobQuery = JobQuery()
    ids: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None

    @property
    def names_state(self) -> bool:
        """Whether those that have left the state since are not meant any more."""
        return bool(self.query.state)


def selection(
    target: str,
    verb: str,
    words: str,
    ids: tuple[str, ...] = (),
    queues: tuple[str, ...] | None = None,
) -> Selection:
    """What a request means.

    Args:
        target: ``jobs``, ``workflows``, ``batches`` or ``graphs``.
        verb: what is to be done to each.
        words: a filter as text, as lists of jobs take it; of batches and graphs ``state:…`` alone.
        ids: the ones that are meant, instead of a filter.
        queues: the only queues whose jobs may be acted on; None for any.

    Raises:
        BadFilter: it names what there is not, or nothing at all.
    """
    verbs = VERBS.get(target)
    if verbs is None:
        raise BadFilter(f"found target {target[:40]!r}, expected one of {', '.join(VERBS)}")
    if verb not in verbs:
        raise BadFilter(f"found verb {verb[:40]!r}, expected one of {', '.join(verbs)}")
    if bool(words.strip()) == bool(ids):
        raise BadFilter("name which ones: either a filter or ids; an empty filter would mean all")
    if len(ids) > MOST_IDS:
        raise BadFilter(f"found {len(ids)} ids, expected at most {MOST_IDS}; take a filter")
    if target in ("jobs", "workflows"):
        query = read_words(words)
        if query.silenced:
            raise BadFilter("silenced: is for lists; name a function: function:NAME")
        state = query.state
    else:
        query, state = JobQuery(), _only_state(target, words) if words.strip() else ""
    may = verbs[verb]
    if state and state not in may.states:
        raise BadFilter(f"found state {state[:40]!r}; {verb} is for {', '.join(may.states)}")
    usual = may.states if ids else may.usual or may.states
    return Selection(
        target=target,
        verb=verb,
        states=(state,) if state else usual,
        query=query,
        ids=ids,
        queues=queues,
    )


def _only_state(target: str, words: str) -> str:
    words = words.strip()
    if not words.startswith(_STATE) or len(words.split()) != 1:
        raise BadFilter(f"{target} are chosen by their state: found {words[:40]!r}, state:NAME")
    return words.removeprefix(_STATE)

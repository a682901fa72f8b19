"""What a record and the event that carries it past the end of the log have in common. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from penstock.jobs.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)


def shared_fields(
    record: type[msgspec.Struct], event: type[msgspec.Struct], besides: Collection[str] = ()
) -> tuple[str, ...]:
    """Fields that both have under the same name, with the same value.

    A field that a later version gives to both is carried without more.

    Args:
        besides: left out, as ``id`` and ``state`` are, which are written in another form.
    """
    left_out = {"id", "state", *besides}
    return tuple(
        name
        for name in record.__struct_fields__
        if name in event.__struct_fields__ and name not in left_out
    )


def values(holder: msgspec.Struct, names: Sequence[str]) -> dict[str, Any]:
    """The fields of these names."""
    return {name: getattr(holder, name) for name in names}


def carried_state(states: type[S], state: str, about: str) -> S:
    """The state that a carried event names.

    Raises:
        IllegalTransition: it is of a later version.
    """
    try:
        return states(state)
    except ValueError as error:
        raise IllegalTransition(f"{about}: {error}") from error

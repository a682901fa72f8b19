"""Parameters of the query: a misspelt one would be passed over, its answer taken for another."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, cast
from urllib.parse import parse_qsl

from litestar.exceptions import ValidationException
from litestar.handlers import HTTPRouteHandler

from penstock.console.past.moments import PARAMETER

_MOST = 100
_LONGEST_NAME = 40


def check_query(handler: HTTPRouteHandler, query: bytes, in_path: Iterable[str]) -> None:
    """Refuses parameters that the handler does not know.

    Args:
        handler: of the request.
        query: as it was sent.
        in_path: names of the parameters of its path.

    Raises:
        ValidationException: names those that are known.
    """
    if not query:
        return
    names = _names(handler, tuple(in_path))
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)[:_MOST]:
        if name in names or name == PARAMETER:  # which others refuse, and say who takes it
            continue
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        expected = f"known are {', '.join(names)}" if names else "none is known here"
        message = f"found {name[:_LONGEST_NAME]!r}; {hint}{expected}"
        raise ValidationException(
            f"there is no such parameter: {message}",
            extra=[{"key": name[:_LONGEST_NAME], "message": message, "source": "query"}],
        )


@lru_cache(maxsize=1000)
def _names(handler: HTTPRouteHandler, in_path: tuple[str, ...]) -> tuple[str, ...]:
    model = handler.create_kwargs_model(cast(Any, dict.fromkeys(in_path)))
    return tuple(sorted(one.field_alias for one in model.expected_query_params))

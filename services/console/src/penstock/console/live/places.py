"""Streams of events that are open, and whose they are: each caller has a part of the places."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from litestar.exceptions import TooManyRequestsException

_RETRY_SECONDS = 5


class Places:
    """Places for open streams.

    Args:
        most: of all callers together.
        of_caller: that a caller may take while any is left.
        is_shared: beyond these a caller may take more, as long as it leaves as many free as it
            holds (the dynamic threshold of Choudhury and Hahne, 1998): one alone has half of all
            places, and who comes later finds some.
    """

    def __init__(self, most: int, of_caller: int, *, is_shared: bool = False) -> None:
        self._most, self._of_caller, self._is_shared = most, of_caller, is_shared
        self._callers: dict[object, str] = {}

    def take(self, caller: str) -> Callable[[], None]:
        """Takes a place at once; returns what gives it back.

        Raises:
            TooManyRequestsException: none is left, or this caller has as many as one may have.
        """
        own = list(self._callers.values()).count(caller)
        free = self._most - len(self._callers)
        if free <= 0:
            raise _refusal(f"{self._most} streams are open; try again later")
        if own >= self._of_caller and not (self._is_shared and own < free):
            raise _refusal(
                f"{own} streams of yours are open; close one of them: {free} places are left for "
                "others"
            )
        place = object()
        self._callers[place] = caller
        return partial(self._give_back, place)

    def _give_back(self, place: object) -> None:
        self._callers.pop(place, None)


def _refusal(detail: str) -> TooManyRequestsException:
    return TooManyRequestsException(detail, headers={"Retry-After": str(_RETRY_SECONDS)})

"""What the code of a workflow asks its context for, and never awaits: a warning with its place.

Python warns of coroutines likewise. It is no error: a workflow may have made an awaitable for a way
that it did not take, and one that has lived for weeks is not to die of it.
"""

from __future__ import annotations

import warnings
from types import CodeType
from typing import Any, NamedTuple, Protocol

_SHOWN: dict[Any, Any] = {}
"""Of what was warned: the code runs again and again, and one warning a place suffices."""


class Part(Protocol):
    """The part of a workflow that asked; what it did not come to await is over with it."""

    is_over: bool


class Origin(NamedTuple):
    """Where an awaitable was made; taken in each advance again, so that it has to cost nothing.

    Attributes:
        part: whose code asked for it.
        method: of the context.
        code: of the function that called the method.
        instruction: in that code; its line is looked up for a warning only.
    """

    part: Part
    method: CodeType
    code: CodeType
    instruction: int

    def warn(self) -> None:
        """Warns that it was never awaited, unless the code was interrupted before."""
        if self.part.is_over:
            return
        method = self.method.co_name
        text = (
            f"ctx.{method}(...) was never awaited, and nothing of it was run: write "
            f"'await ctx.{method}(...)', or give it to ctx.gather(...)"
        )
        warnings.warn_explicit(
            text, RuntimeWarning, self.code.co_filename, self._line(), registry=_SHOWN
        )

    def _line(self) -> int:
        for begin, end, line in self.code.co_lines():
            if begin <= self.instruction < end and line is not None:
                return line
        return self.code.co_firstlineno

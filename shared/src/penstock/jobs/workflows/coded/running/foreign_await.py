"""Coroutines at odds with being run again: foreign awaits, awaits while they are closed."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Coroutine
from typing import Any

from penstock.jobs.errors import WorkflowError

_MOST_AWAITS = 1_000
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_NO_LOOP = re.compile(r"no (?:running|current) event loop")
_ADVICE = (
    "a workflow awaits only what its context gives: ctx.run(job(...)) for work, ctx.step(...) for "
    "a short function, ctx.sleep(...) for time, ctx.gather(...) for several at a time"
)


def foreign_await(work: Coroutine[Any, Any, Any], awaited: object) -> WorkflowError:
    """The error for a coroutine that yielded something else than a command; it is closed."""
    place, current = "", work
    while current is not None:
        frame = getattr(current, "cr_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(_STANDARD_LIBRARY):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}: "
        current = getattr(current, "cr_await", None)  # type: ignore[assignment]
    leave(work)
    return WorkflowError(f"{place}awaits {type(awaited).__name__}; {_ADVICE}")


def without_loop(error: Exception) -> Exception:
    """A clear error in place of asyncio's own, which misses its event loop."""
    if not isinstance(error, RuntimeError) or not _NO_LOOP.search(str(error)):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_STANDARD_LIBRARY)]
    place = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    refused = WorkflowError(f"{place}uses asyncio's event loop; {_ADVICE}")
    refused.__cause__ = error
    return refused


def leave(work: Coroutine[Any, Any, Any]) -> None:
    """Closes a coroutine that goes on in a later advance.

    Its ``finally`` blocks run, as Python has it; what they await does not begin, and what they
    raise does not count.
    """
    for _ in range(_MOST_AWAITS):
        try:
            work.close()
        except RuntimeError:  # it awaits in a 'finally': that await is closed, too
            continue
        except Exception:  # noqa: S110 - it is raised where the code really gets there
            pass
        return

"""What this machine lets a run do, and what it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.chaos.plan import Kind

_SECONDS = 20


class NotAllowed(RuntimeError):
    """This machine refuses something that a plan needs.

    Attributes:
        kinds: the kinds of faults that need it; empty where it is hosts in namespaces.
    """

    kinds: frozenset[Kind] = frozenset()


@contextmanager
def needed_by(*kinds: Kind) -> Iterator[None]:
    """Names the kinds of faults which need what is refused in the block."""
    try:
        yield
    except NotAllowed as error:
        error.kinds = frozenset(kinds)
        raise


def demand(*argv: str, needs: str = "root") -> bytes:
    """Runs a command and returns its output.

    Raises:
        NotAllowed: it is not there, fails, or takes too long; says what it ``needs``.
    """
    try:
        done = subprocess.run(argv, check=True, capture_output=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAllowed(f"needs {needs}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise NotAllowed(f"needs {needs}: {_failure(argv, error.stderr)}") from error
    return done.stdout


def _failure(argv: Sequence[str], output: bytes) -> str:
    text = output.decode("utf-8", "replace").strip()
    return f"`{' '.join(argv)}` failed: {text!r}"

"""Work that holds the interpreter."""

from __future__ import annotations

import time

_TURNS = 5_000_000


def hold_interpreter(seconds: float) -> None:
    """Computes in C code so long, or longer where others use the core: no other thread runs."""
    began = time.thread_time()
    sum(range(_TURNS))
    sum(range(int(_TURNS * seconds / (time.thread_time() - began))))

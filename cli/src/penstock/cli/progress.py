"""How far a command is: a bar where a person looks on, lines where a program does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cli.output import note

_STEP = 0.01


@contextmanager
def progress_bar(title: str, wanted: bool = True) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, where that is a terminal; it takes the share that is done.

    Lines that are printed meanwhile appear above it.

    Args:
        title: on its left.
        wanted: False for no bar, whatever standard error is.
    """
    from rich.console import Console  # noqa: PLC0415 - not needed for JSON
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    disabled = not (wanted and console.is_terminal)
    with Progress(console=console, disable=disabled, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def progress_lines(title: str) -> Iterator[Callable[[float], None]]:
    """The share that is done on standard error, a line each hundredth: ``simulating 0.42``."""
    shown = -1.0

    def show(share: float) -> None:
        nonlocal shown
        if share >= shown + _STEP or share >= 1:
            shown = share
            note(f"{title} {share:.2f}")

    yield show

"""A bar that shows how far a command is, where a person looks on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, where that is a terminal; it takes the share that is done."""
    from rich.console import Console  # noqa: PLC0415 - not needed for JSON
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)

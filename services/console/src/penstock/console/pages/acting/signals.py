"""The form of a signal: which names the workflow waits for, and a warning about any other."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from penstock.console.pages.acting.page_act import PageAct
from penstock.console.parts import Console
from penstock.console.read_models.awaited_signals import awaited_signals

NAME, IS_SURE = "name", "sure"
"""Fields of the form: the signal, and the name about which the sender was warned."""


async def offered(console: Console, act: PageAct, key: str) -> tuple[str, ...] | None:
    """The names that the workflow waits for; None for another act, or where they are not known."""
    return await awaited_signals(console, key) if act.name.endswith(".signal") else None


def doubt(name: str, awaited: Sequence[str]) -> str:
    """What is odd about a name that is not awaited."""
    near = get_close_matches(name, awaited, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    waits = f"It waits for {', '.join(awaited)} now" if awaited else "It waits for no signal now"
    return (
        f"{waits}, not for {name[:100]!r}.{hint} To have it stored for a later step all the same, "
        "send the form again."
    )

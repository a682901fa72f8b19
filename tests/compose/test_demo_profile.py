"""The profile `demo`: load for as long as it was asked, a verdict, and an end."""

from __future__ import annotations

import asyncio
import re

from tests.compose import figures
from tests.compose.watched import Watched


async def test_the_demo_offers_load_tells_how_promises_were_kept_and_ends(site: Watched) -> None:
    run = ("--profile", "demo", "run", "--rm", "-T", "demo", "--minutes", "0.4")
    try:
        told, verdict = await asyncio.to_thread(site.stack.compose, *run), "every promise kept"
    except AssertionError as error:  # a machine with other work to do is too slow for its bursts
        told, verdict = str(error), "a promise broken"
    ended = re.search(r"(\d+) jobs, \1 ended exactly once: (.*)", told)
    assert ended, told
    figures.note(f"profile demo: {ended[0]}, {verdict}")
    assert all(pool in told for pool in ("thumbnails", "office", "reports"))

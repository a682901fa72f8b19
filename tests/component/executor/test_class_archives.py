"""Class archives are made beside the user's jobs only where jobs never leave a moment for it."""

from __future__ import annotations

import asyncio

import pytest

from penstock.executor.spark import archives


@pytest.mark.parametrize(
    ("is_idle", "looks"), [(True, archives._USED_CHECKS), (False, archives._BUSY_CHECKS)]
)
async def test_an_archive_is_made_at_an_idle_moment(is_idle: bool, looks: int) -> None:
    seen = 0
    made: list[tuple[str, int]] = []

    def runs() -> bool:
        nonlocal seen
        seen += 1
        return True

    async def make(kind: str) -> None:
        made.append((kind, seen))

    keeping = archives.keep_made({"connect": runs}, lambda: is_idle, make, check_seconds=0.0)
    await asyncio.wait_for(keeping, 10)
    assert made == [("connect", looks)]

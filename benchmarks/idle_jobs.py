"""The job of an idle installation's benchmark. Nothing here names what would be imported for it."""

from __future__ import annotations

from penstock.jobs import job


@job(queue="default")
def first(text: str) -> int:
    return len(text)

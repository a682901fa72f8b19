"""How much a job may commit: all of it has to fit into one event. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.jobs.errors import CommitRefused

MAX_NAME_BYTES, MAX_LOCATION_BYTES = 512, 4_096
MAX_COMMITS_BYTES = 200_000
"""Beside a call of the largest size, 512,000 bytes or 683,000 in base64, in an event of 1 MiB."""


def check(commits: Mapping[str, str], name: str, location: str) -> None:
    """Whether a job may commit a further location.

    Args:
        commits: what it has committed, by name.

    Raises:
        CommitRefused: it is too long, or all together are too much.
    """
    for what, text, most in (
        ("name", name, MAX_NAME_BYTES),
        ("location", location, MAX_LOCATION_BYTES),
    ):
        if (size := len(text.encode("utf-8", "replace"))) > most:
            raise CommitRefused(f"the {what} of a commit has {size} bytes, at most {most} are kept")
    size = len(msgspec.json.encode({**commits, name: location}))
    if size > MAX_COMMITS_BYTES:
        raise CommitRefused(
            f"the job has {len(commits)} commits; with {name!r} they take {size} bytes, at most "
            f"{MAX_COMMITS_BYTES} are kept. Commit one folder or one list of files instead of many"
        )

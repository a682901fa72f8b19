"""Jobs of the pipeline: the error of a process that failed."""

from __future__ import annotations

import pytest

from penstock.jobs.pipeline import reason

LOG = "05:19:35.929 INFO    py4j.clientserver  Closing down clientserver connection"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            f"{LOG}\npenstock: refused:\n  by the broker\n{LOG}\n",
            "penstock: refused:\n  by the broker",
        ),
        (f"Traceback\n{LOG}\nMemoryError", "MemoryError"),
        (LOG, LOG),
        ("", "it printed no error"),
    ],
    ids=["its own words", "it broke", "only a log", "nothing"],
)
def test_a_failed_command_says_why_and_not_what_it_logged(said: str, why: str) -> None:
    assert reason(said) == why

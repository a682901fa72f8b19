"""What a stream that exists takes over from the settings."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bus import streams
from penstock.config.load import check
from penstock.events.subjects import Subjects


def stream(name: str, **settings: Any) -> dict[str, Any]:
    made = streams.streams(check({"streams": settings}), Subjects())
    return next(config for config in made if config["name"] == name)


@pytest.mark.parametrize("name", ["EVENTS", "SNAPSHOTS"])
def test_the_log_and_the_snapshots_are_compressed_unless_the_settings_say_no(name: str) -> None:
    assert stream(name)["compression"] == "s2"
    assert stream(name, compression="none")["compression"] == "none"


@pytest.mark.parametrize("stored", [{}, {"compression": "none"}])
def test_a_stream_of_an_earlier_version_takes_compression_over(stored: dict[str, Any]) -> None:
    assert streams.changes(stored, stream("EVENTS")) == {"compression": "s2"}
    assert streams.changes(stored, stream("EVENTS", compression="none")) == {}


def test_what_is_as_wanted_stays() -> None:
    assert streams.changes({"compression": "s2", "max_bytes": 7}, stream("EVENTS")) == {}
    assert streams.changes({"compression": "s2"}, stream("JOBS")) == {}

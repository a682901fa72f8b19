"""Numbers with units, both ways."""

from __future__ import annotations

import pytest

from penstock.views import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.0001, "<1 ms"),
        (0.042, "42 ms"),
        (0.25, "0.25 s"),
        (31.4, "31 s"),
        (125, "2 min 5 s"),
        (11_520, "3 h 12 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_seconds(value, text) -> None:
    assert wording.seconds(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("1.5s", 1.5), ("250ms", 0.25), ("10m", 600), ("2h", 7200), ("1d", 86400)],
)
def test_read_seconds(text, value) -> None:
    assert wording.read_seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1w", "1 2", "1e9", "nan"])
def test_what_is_no_length_of_time(text) -> None:
    with pytest.raises(ValueError, match="expected a length of time"):
        wording.read_seconds(text)


def test_rates_and_sizes() -> None:
    assert [wording.rate(value) for value in (None, 0.5, 12.4)] == ["-", "0.5", "12"]
    assert wording.memory(48 * 1024 * 1024) == "48 MiB"
    assert wording.memory(24 << 30) == "24.0 GiB"
    assert [wording.ago(value) for value in (None, 3)] == ["never", "3 s ago"]

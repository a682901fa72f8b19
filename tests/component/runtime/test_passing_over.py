"""One message that a service cannot handle does not end its loop."""

from __future__ import annotations

import logging

import pytest

from penstock.bus.protocol import BusUnavailable
from penstock.runtime.poison_messages import passed_over, passing_over


def test_an_unexpected_error_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    before, handled = passed_over(), []
    with caplog.at_level(logging.ERROR):
        for number in (0, 1, 2):
            with passing_over(f"message {number}"):
                handled.append(1 // number)
    assert handled == [1, 0]
    assert passed_over() == before + 1
    [line] = caplog.messages
    assert line.startswith("message 0 is passed over: ZeroDivisionError")
    assert "test_passing_over.py:" in line


def test_an_error_of_the_broker_is_raised() -> None:
    """The message must not be lost by it."""
    before = passed_over()
    with pytest.raises(BusUnavailable), passing_over("message 1"):
        raise BusUnavailable("away")
    assert passed_over() == before

"""One message that a service cannot handle does not end its loop."""

from __future__ import annotations

import logging

import pytest

from penstock.bus.protocol import BusUnavailable
from penstock.runtime.poison_messages import poison_count, skipping_poison


def test_an_unexpected_error_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    before, handled = poison_count(), []
    with caplog.at_level(logging.ERROR):
        for number in (0, 1, 2):
            with skipping_poison(f"message {number}"):
                handled.append(1 // number)
    assert handled == [1, 0]
    assert poison_count() == before + 1
    [line] = caplog.messages
    assert line.startswith("message 0 is skipped: ZeroDivisionError")
    assert "test_poison_messages.py:" in line


def test_an_error_of_the_broker_is_raised() -> None:
    """The message must not be lost by it."""
    before = poison_count()
    with pytest.raises(BusUnavailable), skipping_poison("message 1"):
        raise BusUnavailable("away")
    assert poison_count() == before

"""Running jobs as samples of the service time."""

from __future__ import annotations

from penstock.events.snapshot import Quantiles
from penstock.measuring.running import with_running


class TestRunningJobs:
    known = Quantiles(count=3, mean_seconds=2, p50_seconds=2, p95_seconds=3, p99_seconds=3)

    def test_younger_than_the_mean_they_say_nothing(self) -> None:
        assert with_running(self.known, [0.5, 1.9]) == self.known

    def test_older_than_the_mean_they_count_as_at_least_that_long(self) -> None:
        found = with_running(self.known, [10.0, 0.1])
        assert found and (found.count, found.mean_seconds, found.p99_seconds) == (4, 4.0, 10.0)

    def test_while_none_has_finished_they_are_all_there_is(self) -> None:
        assert with_running(None, [0.2]) is None
        found = with_running(None, [3.0, 5.0, 0.2])
        assert found and (found.count, found.mean_seconds) == (2, 4.0)

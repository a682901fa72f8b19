"""A report's figures, and the page that they become."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.events.forecasting import ForecastMade
from penstock.pipeline.core.report import Decision, Hour, Moment, PoolReport, Report, judge
from penstock.pipeline.pages.page import page

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = int(BEGIN.timestamp() // 60)


def said(at: datetime, rate: float, steps: int = 4) -> ForecastMade:
    rates = (rate,) * steps
    return ForecastMade(
        pool="a",
        model="harmonic",
        starts_at=at,
        step_seconds=60,
        mean_per_second=rates,
        p80_per_second=rates,
        p95_per_second=rates,
        p99_per_second=rates,
        relative_loss=0.7,
        trained_since=at,
        trained_until=at,
    )


def pool(name: str = "a", **given: Any) -> PoolReport:
    usual: dict[str, Any] = {
        "sla_seconds": 30.0,
        "quantile": 0.95,
        "started": 100,
        "late": 5,
        "p50_seconds": 0.1,
        "p95_seconds": 29.0,
        "longest_seconds": 1234.5,
        "failed": 0,
        "worker_hours": 2.5,
        "hours": tuple(
            Hour(at=BEGIN + timedelta(hours=n), arrivals=n, started=n, late=n // 9, workers=n / 5)
            for n in range(24)
        ),
    }
    return PoolReport(pool=name, **{**usual, **given})


def test_a_forecast_is_judged_by_what_came_in_the_steps_that_are_over() -> None:
    counts = {MINUTE: 30, MINUTE + 1: 90}  # a minute; 60 were said
    found = judge([said(BEGIN, 1.0)], counts, BEGIN.timestamp() + 130)
    assert (found.steps, found.covered["0.80"], found.expected_loss) == (2, 0.5, 0.7)
    assert found.relative_loss is not None
    assert found.relative_loss > 1


def test_of_two_forecasts_of_a_step_the_later_one_counts() -> None:
    first, second = said(BEGIN, 0.0), said(BEGIN + timedelta(minutes=2), 1.0)
    counts = dict.fromkeys(range(MINUTE, MINUTE + 9), 30)
    found = judge([first, second], counts, BEGIN.timestamp() + 3600)
    assert (found.steps, found.covered["0.99"]) == (6, pytest.approx(4 / 6))


def test_one_that_is_all_ahead_is_not_judged_yet() -> None:
    found = judge([said(BEGIN, 1.0)], {}, BEGIN.timestamp())
    assert (found.steps, found.relative_loss) == (0, None)


def test_a_promise_is_kept_by_the_share_and_unknown_without_jobs() -> None:
    assert pool(late=5).kept is True
    assert pool(late=6).kept is False
    assert pool(started=0, late=0).kept is None


def test_the_page_has_everything_in_it_and_escapes_what_came_from_outside() -> None:
    evil = "<script>alert(1)</script>"
    decision = Decision(id="d1", at=BEGIN, current=1, target=3, strategy=evil, why=(evil, "two"))
    moment = Moment(at=BEGIN, started=9, late=4, longest_seconds=77.0, decisions=(decision,))
    pools = (
        pool(evil, late=50, worst=(moment,)),
        pool("quiet", started=0, late=0, hours=(), worker_hours=None),
    )
    html = page(Report(since=BEGIN, until=BEGIN + timedelta(days=1), pools=pools))
    assert evil not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("data:image/png;base64,") == 2
    assert not re.search(r'(?:src|href)="(?!data:image/png|#)', html)
    assert "4 of 9 jobs late in 5 minutes, the longest wait 77 s" in html
    assert "1 → 3 workers" in html
    assert html.index("not kept") < html.index("no jobs")


def test_a_report_of_nothing_is_a_page() -> None:
    html = page(Report(since=BEGIN, until=BEGIN, pools=()))
    assert "Nothing ran in this time." in html

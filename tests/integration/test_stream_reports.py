"""The listener in a real session: what queries report, and that they never wait for the broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.guarded import GuardedBroker
from tests.integration.streaming import CONNECT, Program, Reports, program
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.runtime.paths import free_port

pytestmark = pytest.mark.spark
START = 300.0


async def test_queries_of_a_classic_session_report_their_batches_and_their_ends(
    settings: MakeSettings, tmp_path: Path
) -> None:
    with program(settings(), tmp_path) as running:
        await _reported(running, settings)
    assert "is not reported: it has no name" in (tmp_path / "program.log").read_text()


async def test_queries_of_a_connect_session_do_too(settings: MakeSettings, tmp_path: Path) -> None:
    with program(settings(), tmp_path, CONNECT) as running:
        await _reported(running, settings)


async def _reported(running: Program, settings: MakeSettings) -> None:
    """The life of two queries, by their reports."""
    bus, reports = await connect(settings()), Reports()
    try:
        await reports.listen(bus, settings.prefix)

        def batches() -> int:
            report = reports.last("orders")
            return sum(batch.rows > 0 for batch in report.batches) if report else 0

        await eventually(lambda: batches() >= 2, START, "batches with rows")
        report = reports.last("orders")
        assert report and report.app_id and report.query_id and not report.ended
        assert report.batches_done >= 2
        batch = next(one for one in reversed(report.batches) if one.rows)
        assert 0 < batch.add_seconds < batch.seconds < 30
        assert [source.name for source in batch.sources] == ["RateStreamV2"]

        await eventually(lambda: (last := reports.last("broken")) and last.ended, START)
        broken = reports.last("broken")
        assert broken and broken.error and "secret" not in broken.error

        running.end.touch()
        await eventually(lambda: running.process.exit_code == 0, START, "the program's end")
        await eventually(lambda: (last := reports.last("orders")) and last.ended, 10)
        ended = reports.last("orders")
        assert ended and (ended.error, ended.dropped) == ("", 0)
        assert reports.by_query.keys() == {"orders", "broken"}
    finally:
        await bus.close()


async def test_a_query_goes_on_while_the_broker_is_away(
    settings: MakeSettings, tmp_path: Path
) -> None:
    made = settings(nats={"url": f"nats://127.0.0.1:{free_port()}"})
    with program(made, tmp_path) as running:
        log = tmp_path / "program.log"
        await eventually(
            lambda: "progress of streaming queries is not reported" in log.read_text(), START
        )
        running.end.touch()
        await eventually(lambda: running.process.exit_code == 0, START, "the program's end")


async def test_the_key_of_the_role_is_enough(
    guarded: GuardedBroker, settings: MakeSettings, tmp_path: Path
) -> None:
    prefix = "penstock"  # of the keys
    made = guarded.settings(settings, "stream-reporter", prefix=prefix)
    orchestrator = await connect(guarded.settings(settings, "orchestrator", prefix=prefix))
    bus = await connect(guarded.settings(settings, "metrics", prefix=prefix))
    reports = Reports()
    try:
        await reports.listen(bus, prefix)
        with program(made, tmp_path) as running:
            await eventually(lambda: reports.last("orders"), START, "a report")
            running.end.touch()
            await eventually(lambda: running.process.exit_code == 0, START, "the program's end")
    finally:
        await bus.close()
        await orchestrator.close()

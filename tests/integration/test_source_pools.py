"""A pool whose work is in another system: measured by the metrics service, decided like any other.

The other system is a file that the kind `command` prints, so that each figure is known.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.measured import QUICK, Stage, known
from tests.making import MakeSettings
from tests.redis_server import redis_server
from tests.waiting import eventually

from penstock.cli.config_remarks import judge
from penstock.config.load import ConfigError, check
from penstock.config.topology import pools
from penstock.events.snapshot import MEASURED, SourceUnread
from penstock.metrics.app import run

FAST = {"interval_seconds": 0.2}
WITHIN = 60.0


class Figures:
    """What the other system reports of its queue ``mail``."""

    def __init__(self, folder: Path) -> None:
        self.file, self._hidden = folder / "figures.json", folder / "hidden.json"

    def report(self, **figures: Any) -> None:
        hidden = self._hidden
        hidden.write_text(json.dumps({"mail": figures}))
        hidden.rename(self.file)

    def hide(self) -> None:
        self.file.unlink()

    def tables(self, **pool: Any) -> dict[str, Any]:
        shop = {"kind": "command", "command": ["cat", str(self.file)], **FAST}
        mail = {"source": "shop", "command": ["true"], "min_workers": 0, **pool}
        return {"sources": {"shop": shop}, "pools": {"mail": mail}}


@pytest.fixture
def figures(tmp_path) -> Figures:
    return Figures(tmp_path)


@pytest.fixture
async def stage(settings: MakeSettings) -> AsyncIterator[Stage]:
    stage = Stage("memory", settings)
    yield stage
    await stage.close()


async def test_figures_of_another_system_become_those_of_the_pool(stage, figures) -> None:
    figures.report(waiting=0, claimed=0, arrived=100, ended=100)
    await stage.start(**figures.tables(), metrics=QUICK)
    await stage.seen(WITHIN, waiting=0, source="shop", queues=("mail",))
    figures.report(waiting=5, claimed=2, delayed=3, arrived=107, ended=100, oldest_seconds=4.5)
    snapshot = await stage.seen(WITHIN, waiting=5, running=2, delayed=3, arrival_per_second=known)
    assert 4.5 <= snapshot.oldest_waiting_seconds < 60
    assert snapshot.estimated == ("budget", "pickup", "service")


async def test_a_system_that_is_away_leaves_the_last_figures_with_their_age(stage, figures) -> None:
    figures.report(waiting=5)
    await stage.start(**figures.tables(), metrics=QUICK)
    await stage.seen(WITHIN, waiting=5)
    figures.hide()
    snapshot = await stage.seen(WITHIN, waiting=5, source_fault=lambda text: "No such file" in text)
    older = await stage.seen(
        WITHIN, waiting=5, queue_age_seconds=lambda age: age > snapshot.queue_age_seconds
    )
    assert older.source_fault
    figures.report(waiting=6)
    await stage.seen(WITHIN, waiting=6, source_fault="")


async def test_a_system_that_was_never_seen_has_no_figures(stage, figures) -> None:
    tables = figures.tables()
    await stage.start({**tables["pools"], "own": {}}, QUICK, sources=tables["sources"])
    await stage.seen(WITHIN, pool="own", waiting=0)
    await stage.seen(WITHIN, pool="own", waiting=0, arrival_per_second=known)
    assert {snapshot.pool for snapshot in stage.snapshots} == {"own"}


async def test_why_a_system_was_never_seen_is_published_in_the_place_of_figures(
    stage, figures
) -> None:
    await stage.start(**figures.tables(), metrics=QUICK)
    subject = stage.subjects.pool_snapshot("mail")

    async def unread() -> list[SourceUnread]:
        stored = await stage.world.last(stage.subjects.snapshots_stream, subject)
        event = MEASURED.decode(stored.body) if stored else None
        return [event] if isinstance(event, SourceUnread) else []

    await eventually(unread, WITHIN)
    [event] = await unread()
    assert (event.pool, event.of_source) == ("mail", "shop")
    assert "No such file" in event.source_fault
    assert stage.snapshots == []
    figures.report(waiting=5)
    await stage.seen(WITHIN, waiting=5, source_fault="")


async def test_a_pool_by_a_pattern_is_measured_like_any_other(stage, tmp_path) -> None:
    rq = pytest.importorskip("rq")
    redis = pytest.importorskip("redis")
    with redis_server(tmp_path) as server:
        client = redis.Redis.from_url(server.url)
        for tenant in range(3):
            rq.Queue(f"tenant-{tenant}", connection=client).enqueue("time.time")
        rq.Queue("other", connection=client).enqueue("time.time")
        shop = {"kind": "rq", "url": server.url, **FAST}
        pool = {"source": "shop", "command": ["true"], "queues": ["tenant-*"], "min_workers": 0}
        await stage.start({"tenants": pool}, QUICK, sources={"shop": shop})
        snapshot = await stage.seen(WITHIN, waiting=3, queues=("tenant-*",))
        assert "arrival_per_second" not in snapshot.estimated
        rq.Queue("tenant-1", connection=client).enqueue("time.time")
        await stage.seen(WITHIN, waiting=4, source_fault="")
        rq.Queue("tenant-0", connection=client).delete()
        await stage.seen(WITHIN, waiting=3, source_fault="")
        await stage.stop()


def test_wrong_sources_are_refused_before_anything_starts(figures) -> None:
    tables = figures.tables()
    tables["sources"]["shop"]["kind"] = "comand"
    settings = check(tables)
    with pytest.raises(ConfigError, match="unknown kind 'comand'; did you mean 'command'"):
        run(settings)
    [error] = [
        one for one in judge(settings, pools(settings), no_import=True) if one.level == "error"
    ]
    assert (error.rule, "did you mean 'command'" in error.text) == ("bad-source", True)


@pytest.mark.parametrize(
    ("options", "pool", "refused"),
    [
        ({}, {}, True),
        ({"arrived": "came"}, {}, False),
        ({"ended": "done"}, {}, False),
        ({}, {"runtime_seconds": 2.5}, False),
        ({}, {"strategy": "backlog_only"}, False),
    ],
)
def test_deadline_without_arrivals_is_refused_with_the_reason(
    figures, options, pool, refused
) -> None:
    tables = figures.tables(**pool)
    tables["sources"]["shop"] = {
        "kind": "http", "url": "http://cache/stats", "options": {"waiting": "depth", **options},
    }  # fmt: skip
    settings = check(tables)
    remarks = judge(settings, pools(settings), no_import=True)
    reasons = [remark.text for remark in remarks if remark.rule == "bad-source"]
    assert bool(reasons) is refused
    assert not refused or "set runtime_seconds" in reasons[0]


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ({"kind": "http", "url": "http://cache/stats", "options": {"waiting": "n"}}, True),
        ({"kind": "sql", "url": "postgresql://db/x", "options": {"query": "x"}}, True),
        (
            {"kind": "sql", "url": "postgresql://db/x", "options": {"query": "x", "names": "y"}},
            False,
        ),
        ({"kind": "rq", "url": "redis://cache"}, False),
    ],
)
def test_patterns_of_a_kind_that_lists_no_queues_are_refused(figures, source, refused) -> None:
    tables = figures.tables(queues=["mail-*"], runtime_seconds=1.0)
    tables["sources"]["shop"] = source
    settings = check(tables)
    remarks = judge(settings, pools(settings), no_import=True)
    reasons = [remark.text for remark in remarks if remark.rule == "bad-source"]
    assert bool(reasons) is refused
    assert not refused or "found the pattern 'mail-*'" in reasons[0]


@pytest.mark.parametrize(
    ("url", "pool", "refused"),
    [
        ("amqp://shop", {"runtime_seconds": 2.5}, True),
        ("amqp://shop", {"strategy": "backlog_only"}, False),
        ("http://shop:15672", {}, False),
    ],
)
def test_deadline_is_refused_where_only_what_waits_is_reported(figures, url, pool, refused) -> None:
    tables = figures.tables(**pool)
    tables["sources"]["shop"] = {"kind": "rabbitmq", "url": url}
    settings = check(tables)
    remarks = judge(settings, pools(settings), no_import=True)
    reasons = [remark.text for remark in remarks if remark.rule == "bad-source"]
    assert bool(reasons) is refused
    assert not refused or "the management API" in reasons[0]

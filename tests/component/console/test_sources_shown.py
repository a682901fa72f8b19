"""A pool whose queues are in another system, on the console's pages and in its API."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_pages import page

from penstock.config import Settings
from penstock.config.load import check
from penstock.events.snapshot import Budget, PoolSnapshot, Quantiles

SHOP = {"kind": "celery", "url": "redis://cache:6379/0"}
ESTIMATED = ("arrival_per_second", "budget", "oldest_waiting_seconds", "pickup", "service")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return check(
        {
            "sources": {"shop": SHOP},
            "pools": {"mail": {"source": "shop", "command": ["true"], "runtime_seconds": 2}},
            "host": {"run_dir": str(tmp_path / "run")},
        }
    )


async def measure(site: Site, fault: str = "") -> None:
    times = Quantiles(count=9, mean_seconds=4, p50_seconds=4, p95_seconds=4, p99_seconds=4)
    snapshot = PoolSnapshot(
        pool="mail",
        queues=(),
        waiting=1234,
        oldest_waiting_seconds=3.0,
        arrival_per_second=7.0,
        service=times,
        pickup=times,
        budget=Budget(
            sla_seconds=30, quantile=0.9, window_seconds=60, jobs=10, remaining_share=0.5
        ),
        source="shop",
        source_fault=fault,
        queue_age_seconds=600,
        estimated=ESTIMATED,
        stuck=2,
    )
    await site.publish(site.subjects.pool_snapshot("mail"), snapshot)


async def test_pages_mark_estimates_and_name_a_fault_and_stuck_messages(site: Site) -> None:
    await measure(site, fault="connection <refused>")
    fault = "source shop: connection &lt;refused&gt;; the figures are 10 min"
    overview, pools, pool = [await page(site, path) for path in ("/", "/pools", "/pools/mail")]
    assert f"mail: {fault}" in overview
    assert "≈3 s" in overview
    for text in (pools, pool):
        assert fault in text
        assert "2 messages are stuck" in text
        assert "≈100 %" in text
        assert "≈1,234" not in text, "it was counted"
    for field in ("Oldest waits</dt><dd>≈3 s", "Arrivals a second</dt><dd>≈7", "≈4 s · ≈4 s"):
        assert field in pool


async def test_the_api_has_the_values_and_a_fault_needs_attention(site: Site) -> None:
    await measure(site, fault="connection refused")
    mail = (await site.client.get("/api/v1/pools")).json()["items"][0]["source"]
    assert 600 <= mail.pop("age_seconds") < 700
    assert mail == {
        "name": "shop",
        "fault": "connection refused",
        "estimated": list(ESTIMATED),
        "stuck": 2,
    }
    promise = (await site.client.get("/api/v1/promises")).json()["items"][0]
    assert promise["source"]["fault"] == "connection refused"
    [one] = (await site.client.get("/api/v1/attention")).json()["items"]
    assert (one["kind"], one["subject"], one["link"]) == ("source-fault", "mail", "/pools/mail")
    await measure(site)
    assert (await site.client.get("/api/v1/attention")).json()["items"] == []

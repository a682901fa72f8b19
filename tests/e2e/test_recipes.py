"""The recipes, each done as written in a fresh folder; and what they promise beyond that."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from tests.e2e.pages import Block, Reader, blocks
from tests.integration.shell import Shell
from tests.postgres import postgres

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
ORDERS = 60
KILLS = 6
SENT_AND_KILLED = """\
# sent_and_killed.py
import os

import psycopg

from penstock.config import load
from penstock.jobs import SyncClient

with SyncClient(load()) as client, psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    connection.execute("INSERT INTO orders (item) VALUES ('sent twice')")
    row = connection.execute(
        "INSERT INTO penstock_outbox (function, arguments, queue) "
        "VALUES ('jobs.bill', %s, 'bills') RETURNING id",
        ['{"order_id": 0}'],
    ).fetchone()
    client.dispatch_named("jobs.bill", {"order_id": 0}, queue="bills", job_id=str(row[0]))
"""
"""A row whose job is dispatched already, as a relay leaves it that is killed in between."""


@pytest.mark.parametrize("recipe", ["fastapi", "django", "gunicorn"])
def test_a_recipe_works_as_written(recipe: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        for block in blocks((RECIPES / f"{recipe}.md").read_text()):
            reader.follow(block)


def test_each_committed_order_has_one_job_though_relays_are_killed(tmp_path: Path) -> None:
    random_pauses = random.Random(11)
    with ExitStack() as stack:
        environment = stack.enter_context(postgres())
        reader = Reader(tmp_path, stack, environment)
        for block in blocks((RECIPES / "transactional-outbox.md").read_text()):
            reader.follow(block)
        command = Block("sh", "")
        database = stack.enter_context(
            psycopg.connect(environment["DATABASE_URL"], autocommit=True)
        )
        killed = reader.start("python relay.py")
        for number in range(KILLS):
            items = [f"item-{number}-{place}" for place in range(ORDERS // KILLS)]
            reader.follow(command._replace(text=f"python order.py {' '.join(items)}\n"))
            time.sleep(random_pauses.uniform(0.0, 0.5))  # the point of the kill is drawn
            killed.kill()
            killed.wait()
            killed = reader.start("python relay.py")
        reader.follow(Block("python", SENT_AND_KILLED))
        reader.follow(command._replace(text="python sent_and_killed.py\n"))
        with database.transaction(force_rollback=True):
            database.execute(
                "INSERT INTO penstock_outbox (function, queue) VALUES ('jobs.bill', 'bills')"
            )
        shell = Shell(tmp_path)
        ended = Counter[str]()
        deadline = time.monotonic() + 60
        while ended.total() < ORDERS + 3 and time.monotonic() < deadline:
            jobs = shell.json("job", "ls", "--limit", "1000")
            ended = Counter(job["id"] for job in jobs if job["state"] == "completed")
        [orders] = database.execute("SELECT count(*) FROM orders").fetchone() or [0]
        assert orders == ORDERS + 3
        assert (len(ended), ended.total(), len(jobs)) == (orders, orders, orders)
        rows_left = "SELECT count(*) FROM penstock_outbox"
        while database.execute(rows_left).fetchone() != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    [unit] = [
        block.text
        for block in blocks((RECIPES / "systemd.md").read_text())
        if block.language == "ini"
    ]
    path = tmp_path / "penstock@executor.service"
    path.write_text(unit.replace("/opt/shop/.venv/bin/penstock", "/bin/true"))
    try:
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("needs systemd-analyze")
    complaints = [line for line in verified.stderr.splitlines() if path.name in line]
    assert complaints == []

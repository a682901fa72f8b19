"""`penstock config`."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path

import pytest

from penstock.cli import declared_jobs
from penstock.cli.session import Session
from penstock.config.load import check
from penstock.events.subjects import Subjects
from penstock.operations.settings_in_force import Announcer, SettingsInForce, services
from penstock.testing.memory.bus import MemoryBus

POOLS = """
[jobs]
modules = ["json", "nowhere.jobs"]
[nats]
user = "me"
password = "hunter2"
[pools.reports]
sla_seconds = 5
[pools.mails]
kind = "group"
queues = ["urgent", "later"]
"""


def test_check_counts_and_warns(penstock) -> None:
    hook = '[hooks.alarm]\ncommand = ["no-such-program"]\n'
    Path("penstock.toml").write_text(POOLS + hook)
    said = penstock("config", "check", "--no-import")
    assert said.exit_code == 0
    assert said.stdout.splitlines() == [
        "warning: hooks.alarm: command 'no-such-program' cannot be run on this machine",
        "ok: 2 pools, 3 queues, 2 job modules",
    ]


def test_check_counts_queues_of_other_systems(penstock) -> None:
    source = '[sources.shop]\nkind = "celery"\nurl = "redis://cache:6379/0"\n'
    pool = 'source = "shop"\nqueues = ["mail", "low"]\nkind = "group"\ncommand = ["true"]\n'
    Path("penstock.toml").write_text(f"{source}[pools.mail]\n{pool}runtime_seconds = 2\n")
    checked = penstock("config", "check", "--offline")
    assert checked.exit_code == 0, checked.output
    ok = "ok: 1 pools, 0 queues, 2 queues of other systems, 0 job modules"
    assert checked.stdout.splitlines()[-1] == ok


SHOP = """
import penstock.jobs
print("printed while it is imported")
@penstock.jobs.job(queue="reports")
def alarm(notice: penstock.jobs.JobNotice) -> None: ...
@penstock.jobs.job(queue="reports")
def load(table: str) -> None: ...
"""
CALLS = """
[jobs]
modules = ["shop_jobs_of_check"]
[pools.reports]
[hooks.right]
job = "shop_jobs_of_check.alarm"
queue = "reports"
[hooks.misspelt]
job = "shop_jobs_of_check.allarm"
queue = "reports"
[hooks.unfit]
job = "shop_jobs_of_check.load"
queue = "nowhere"
[schedules.right]
job = "shop_jobs_of_check.load"
cron = "0 2 * * *"
arguments = { table = "orders" }
[schedules.lacking]
job = "shop_jobs_of_check.load"
cron = "0 2 * * *"
[schedules.unknown]
job = "shop_jobs_of_check.lod"
cron = "0 2 * * *"
"""


def test_check_refuses_jobs_of_hooks_and_schedules_that_cannot_be_called(penstock) -> None:
    Path("shop_jobs_of_check.py").write_text(SHOP)
    Path("penstock.toml").write_text(CALLS)
    said = penstock("config", "check", "--offline", "--json")
    assert said.exit_code == 2
    told = json.loads(said.stdout)
    errors = {text.partition(":")[0]: text for text in told["errors"]}
    assert errors.keys() == {
        "hooks.misspelt", "hooks.unfit", "schedules.lacking", "schedules.unknown"
    }  # fmt: skip
    assert "did you mean 'shop_jobs_of_check.alarm'?" in errors["hooks.misspelt"]
    assert "notice" in errors["hooks.unfit"]
    assert "table" in errors["schedules.lacking"]
    assert any("hooks.unfit: queue 'nowhere': no pool takes it" in w for w in told["warnings"])
    assert penstock("config", "check", "--offline", "--no-import").exit_code == 0


def test_reload_asks_no_service_where_check_refuses(penstock, monkeypatch) -> None:
    Path("shop_jobs_of_check.py").write_text(SHOP)
    Path("penstock.toml").write_text(CALLS)
    asked: list[object] = []
    monkeypatch.setattr(Session, "run", lambda _, request: asked.append(request) or ([], []))
    said = penstock("config", "reload")
    assert (said.exit_code, asked) == (2, [])
    assert "schedules.lacking: " in said.stderr
    assert "nothing was reloaded; see 'penstock config check'" in said.stderr
    penstock("config", "reload", "--no-import")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "No module named 'shop_jobs_of_check'"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import os; os._exit(7)", "ended with 7"),
        ("import time; time.sleep(60)", "took longer than 1 s"),
    ],
)
def test_check_refuses_modules_that_cannot_be_imported(
    penstock, monkeypatch, code: str | None, reason: str
) -> None:
    if code:
        Path("shop_jobs_of_check.py").write_text(code)
    Path("penstock.toml").write_text(CALLS)
    if "sleep" in (code or ""):
        monkeypatch.setattr(declared_jobs, "IMPORT_SECONDS", 1.0)
    said = penstock("config", "check", "--offline", "--json")
    assert said.exit_code == 2
    [error] = json.loads(said.stdout)["errors"]
    assert error.startswith("jobs.modules: ")
    assert "shop_jobs_of_check" in error
    assert reason in error


def test_check_refuses_what_a_strategy_does_not_take(penstock) -> None:
    table = '[pools.mails]\nstrategy = "queue_size"\n[pools.mails.options.queue_size]\n'
    Path("penstock.toml").write_text(table + "high_watermark = -5\n")
    said = penstock("config", "check")
    assert said.exit_code == 2
    assert said.stderr == (
        "penstock: pools.mails.options.queue_size.high_watermark: "
        "expected a whole number >= 0, found -5\n"
    )


def test_check_refuses_an_unknown_strategy(penstock) -> None:
    Path("penstock.toml").write_text('[pools.mails]\nstrategy = "queue_sise"\n')
    said = penstock("config", "check")
    assert said.exit_code == 2
    assert "unknown strategy 'queue_sise'; did you mean 'queue_size'?" in said.stderr


def test_secrets_of_a_users_own_strategy_are_hidden_too(penstock) -> None:
    Path("penstock.toml").write_text(
        '[profiles.balanced.options.mine]\napi_token = "hunter2"\n[pools.mails]\n'
    )
    assert "hunter2" not in penstock("config", "show").output
    assert "hunter2" not in penstock("--json", "config", "show").output


def test_check_of_nothing_says_what_is_missing(penstock) -> None:
    told = json.loads(penstock("config", "check", "--json").stdout)
    assert told["ok"] is True
    assert len(told["warnings"]) == 2


def test_show_is_toml_with_profiles_worked_out_and_secrets_hidden(penstock) -> None:
    Path("penstock.toml").write_text(POOLS)
    said = penstock("config", "show", "--nats-url", "nats://127.0.0.1:4999")
    shown = tomllib.loads(said.stdout)
    assert shown["nats"]["url"] == "nats://127.0.0.1:4999"
    assert shown["pools"]["reports"]["sla_seconds"] == 5
    assert shown["pools"]["reports"]["quantile"] == 0.95
    assert "hunter2" not in said.output
    as_json = json.loads(penstock("--json", "config", "show").stdout)
    assert as_json["pools"]["mails"]["queues"] == ["urgent", "later"]


def test_environment_lies_over_the_file_and_flags_over_both(penstock, monkeypatch) -> None:
    Path("penstock.toml").write_text("[nats]\nurl = 'nats://file'\n")
    monkeypatch.setenv("PENSTOCK_NATS__URL", "nats://environment")
    assert 'nats.url = "nats://environment"' in penstock("config", "show").stdout
    flagged = penstock("--nats-url", "nats://flag", "config", "show").stdout
    assert 'nats.url = "nats://flag"' in flagged


def test_check_refuses_a_promise_that_cannot_hold(penstock) -> None:
    Path("penstock.toml").write_text("[pools.mails]\nsla_seconds = 0.05\nmin_workers = 0\n")
    said = penstock("config", "check", "--offline")
    assert said.exit_code == 2
    assert "error: pools.mails: SLA 0.05 s, minimum 0, a worker needs 0.1 s" in said.stdout
    assert said.stdout.splitlines()[-1].startswith("refused: 1 errors")
    told = json.loads(penstock("config", "check", "--offline", "--json").stdout)
    assert told["ok"] is False
    assert [each["rule"] for each in told["findings"]] == [
        "no-module",
        "cold-start",
        "slow-measuring",
    ]
    assert told["errors"] == [told["findings"][1]["text"]]


def test_check_strictly_refuses_warnings_too(penstock) -> None:
    Path("penstock.toml").write_text(
        '[jobs]\nmodules = ["json"]\n[pools.mails]\nstrategy = "simple_rate"\n'
    )
    assert penstock("config", "check", "--offline").exit_code == 0
    said = penstock("config", "check", "--offline", "--strict")
    assert said.exit_code == 2
    assert "does not look at the promise" in said.stdout


def test_check_without_a_broker_says_that_nothing_was_measured(penstock) -> None:
    Path("penstock.toml").write_text(POOLS)
    said = penstock("config", "check", "--no-import", "--nats-url", "nats://127.0.0.1:9")
    assert said.exit_code == 0
    assert "no broker answers" in said.stderr
    assert "hunter2" not in said.output


def test_check_refuses_what_a_policy_does_not_take(penstock) -> None:
    table = '[pools.mails]\npolicies = ["budget-cap"]\n'
    Path("penstock.toml").write_text(table)
    said = penstock("config", "check")
    assert said.exit_code == 2
    assert said.stderr == (
        "penstock: pools.mails.policy_options.budget-cap: "
        "expected worker_hours_per_day or money_per_day, found neither\n"
    )


def test_diff_as_json_has_the_differences_and_no_secret(penstock, monkeypatch) -> None:
    Path("penstock.toml").write_text("[pools.reports]\nsla_seconds = 4\n")
    running = check(
        {
            "pools": {"reports": {"sla_seconds": 5}},
            "jobs": {"modules": ["shop"]},
            "nats": {"monitor_url": "http://127.0.0.1:8222/5ecre7pa7h"},
        }
    )

    async def published() -> list[SettingsInForce]:
        bus = MemoryBus()
        await Announcer(bus, "decider", running).publish()
        return await services(bus, Subjects())

    [record] = asyncio.run(published())
    assert "5ecre7pa7h" not in str(record)
    monkeypatch.setattr(Session, "run", lambda *_: [record])
    shown = penstock("config", "diff", "--json")
    assert shown.exit_code == 1
    told = json.loads(shown.stdout)
    assert {row["name"]: row["in_force"] for row in told["differences"]} == {
        "pools.reports.sla_seconds": 5.0,
        "jobs.modules": ["shop"],
    }
    [service] = told["services"]
    assert service.keys() == {
        "service", "host", "pid", "at", "comparable", "refused", "waiting"
    }  # fmt: skip


def test_check_warns_of_flags_with_which_another_systems_consumer_will_not_do(penstock) -> None:
    Path("penstock.toml").write_text(
        '[pools.mail]\nstrategy = "fixed"\npreset = "celery"\n'
        'command = ["/nowhere/celery", "worker", "-c", "1", "-l", "INFO", "-n", "{worker}"]\n'
    )
    answer = json.loads(penstock("config", "check", "--offline", "--json").stdout)
    findings = {each["rule"]: each["text"] for each in answer["findings"]}
    assert "add '--prefetch-multiplier=1'" in findings["command-flags"]
    assert "'/nowhere/celery' cannot be run on this machine" in findings["unknown-command"]
    assert "no-module" not in findings

"""Each value of a setting once: where it comes from, and when another one is adopted."""

from __future__ import annotations

import socket
from typing import Any

from penstock.config.load import check, set_by_variables
from penstock.console.read_models.settings_rows import setting_rows
from penstock.events.envelope import utc_now
from penstock.operations.settings_in_force import SettingsInForce


def record(service: str, settings: dict[str, Any] | None, **fields: Any) -> SettingsInForce:
    fields = {"variables": (), "host": "node-1", "pid": 1, "at": utc_now(), **fields}
    return SettingsInForce(service=service, settings=settings, **fields)


MAILS = {"pools": {"mails": {"sla_seconds": 5}}}


def test_what_all_services_share_stands_there_once() -> None:
    [row] = setting_rows([record("decider", MAILS), record("metrics", MAILS)])
    assert (row.name, row.value, row.source) == ("pools.mails.sla_seconds", "5", "file")
    assert row.services == ("decider on node-1", "metrics on node-1")


def test_a_value_that_differs_has_a_row_of_its_own() -> None:
    other = {"pools": {"mails": {"sla_seconds": 9}}}
    rows = setting_rows([record("decider", MAILS), record("metrics", other, waiting=("x",))])
    assert [(row.value, row.services) for row in rows] == [
        ("5", ("decider on node-1",)),
        ("9", ("metrics on node-1",)),
    ]


def test_the_source_says_when_another_value_is_adopted() -> None:
    claims = {"jobs": {"claim_seconds": 9}}
    rows = setting_rows(
        [
            record("executor", claims, pid=1),
            record("decider", claims, pid=2),
            record("metrics", claims, pid=3, variables=("jobs.claim_seconds",)),
            record("orchestrator", claims, pid=4, variables=None),
        ]
    )
    assert {row.services[0]: (row.source, row.adopted) for row in rows} == {
        "executor on node-1": ("file", "restart"),
        "decider on node-1": ("file", "reload"),
        "metrics on node-1": ("environment", "restart"),
        "orchestrator on node-1": ("file or environment", "reload"),
    }


def test_defaults_are_there_where_they_are_asked_for() -> None:
    rows = setting_rows([record("decider", MAILS)], with_defaults=True)
    sources = {row.name: row.source for row in rows}
    assert sources["pools.mails.sla_seconds"] == "file"
    assert sources["jobs.claim_seconds"] == "default"
    assert setting_rows([record("decider", None)], with_defaults=True) == []


def test_a_variable_sets_a_setting_or_the_table_around_it() -> None:
    names = ["nats.url", "pools.mails.sla_seconds", "host.run_dir"]
    variables = {"PENSTOCK_NATS__URL": "x", "PENSTOCK_POOLS__MAILS": "{}", "PENSTOCK_CONFIG": "y"}
    assert set_by_variables(names, variables) == names[:2]


def test_what_a_variable_holds_against_the_file_is_named() -> None:
    file = check({"host": {"run_dir": "/new"}, "nats": {"url": "nats://new:4222"}})
    mine = record(
        "decider",
        {"host": {"run_dir": "/old"}},
        host=socket.gethostname(),
        broker="nats://old:4222",
        variables=("host.run_dir", "nats.url"),
    )
    assert mine.held_by_variables(file) == ["host.run_dir", "nats.url"]
    assert mine.held_by_variables(check({})) == [], "the file leaves it to the variable"
    elsewhere = record("decider", {"host": {"run_dir": "/old"}}, variables=("host.run_dir",))
    assert elsewhere.held_by_variables(file) == []

"""What differs between two sets of settings, and what a running executor takes over."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import Settings
from penstock.config.load import check, dump
from penstock.config.masking import MASK
from penstock.config.reloading import (
    changed_names,
    differences,
    needs_restart,
    sparse,
    taken_over,
)


def settings(**tables: Any) -> Settings:
    return check({"host": {"name": "a"}, **tables})


def changes(file: Settings, in_force: Settings) -> dict[str, tuple[Any, Any]]:
    found = differences(sparse(file), sparse(in_force))
    return {change.name: (change.file, change.in_force) for change in found}


def test_sparse_settings_hold_what_is_not_default_and_no_secrets():
    made = settings(nats={"url": "nats://ann:secret@h", "password": "x"}, pools={"mails": {}})
    assert sparse(made) == {
        "host": {"name": "a"},
        "nats": {"url": "nats://***@h", "password": "***"},
        "pools": {"mails": {}},
    }
    assert (
        check(sparse(settings(pools={"mails": {"sla_seconds": 4}}))).pools["mails"].sla_seconds == 4
    )


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://hooks.slack.com/services/T0/B0/SECRET", "https://hooks.slack.com/***"),
        ("https://h:8443?api_key=SECRET", "https://h:8443/***"),
        ("https://ann:SECRET@h/x#SECRET", "https://***@h/***"),
        ("https://h/", "https://h/"),
    ],
)
def test_of_addresses_scheme_and_host_are_shown(address, shown):
    made = settings(hooks={"pager": {"url": address, "on": ["dead"]}})
    published = sparse(made)
    assert published["hooks"]["pager"]["url"] == shown
    assert check(published).hooks["pager"].url == shown
    other = settings(hooks={"pager": {"url": f"{address}2", "on": ["dead"]}})
    assert changed_names(other, made) == ["hooks.pager.url"]


def test_of_commands_the_program_is_shown():
    made = settings(hooks={"pager": {"command": ["curl", "-u", "me:SECRET", "-pSECRET"]}})
    published = sparse(made)
    assert published["hooks"]["pager"]["command"] == ["curl", MASK]
    assert check(published).hooks["pager"].command == ("curl", MASK)
    other = settings(hooks={"pager": {"command": ["curl", "-u", "me:OTHER", "-pSECRET"]}})
    assert changed_names(other, made) == ["hooks.pager.command"]
    alone = settings(hooks={"pager": {"command": ["page"]}})
    assert sparse(alone)["hooks"]["pager"]["command"] == ["page"]


def test_names_that_are_masked_in_jobs_are_masked_in_schedules_and_hide_no_setting():
    table = {"cron": "0 4 * * *", "job": "shop.report", "arguments": {"pin": "1234", "n": 1}}
    made = settings(
        encryption={"masked": ["pin", "job"]}, schedules={"nightly": {**table, "queue": "a"}}
    )
    published = sparse(made)["schedules"]["nightly"]
    assert published["arguments"] == {"pin": MASK, "n": 1}
    assert published["job"] == "shop.report"
    assert "1234" not in dump(made)


@pytest.mark.parametrize("address", ["nats://a:4222,nats://b:4222", "file:///srv/lake", "local[2]"])
def test_addresses_without_more_than_a_host_stay(address):
    assert sparse(settings(nats={"url": address}))["nats"]["url"] == address


@pytest.mark.parametrize(
    ("file", "in_force", "expected"),
    [
        ({}, {}, {}),
        (
            {"pools": {"mails": {"sla_seconds": 4}}},
            {"pools": {"mails": {"sla_seconds": 5}}},
            {"pools.mails.sla_seconds": (4.0, 5.0)},
        ),
        (
            {"pools": {"mails": {}, "new": {}}},
            {"pools": {"mails": {"min_workers": 2}}},
            {
                "pools.mails.min_workers": (None, 2),
                "pools.new": ({}, None),
            },
        ),
        (
            {"decider": {"stale_seconds": 9}},
            {},
            {"decider.stale_seconds": (9.0, 5.0)},
        ),
        ({"nats": {"url": "nats://h"}, "http": {"address": ""}}, {}, {}),
        ({"host": {"name": "b", "run_dir": "/x"}}, {}, {}),
    ],
)
def test_differences_leave_out_what_machines_have_of_their_own(file, in_force, expected):
    assert changes(settings(**file), settings(**in_force)) == expected


def test_an_executor_takes_over_all_but_what_it_reads_at_its_start():
    current = settings(nats={"url": "nats://h:1"}, pools={"mails": {}})
    new = check(
        {
            "host": {"name": "b", "drain_seconds": 5},
            "nats": {"url": "nats://h:2"},
            "spark": {"memory": "4g"},
            "pools": {"mails": {"tries": 9}, "new": {}},
        }
    )
    merged, waiting = taken_over(current, new)
    assert waiting == ("host.name", "nats.url", "spark.memory")
    assert (merged.host.name, merged.host.drain_seconds) == ("a", 5)
    assert merged.nats.url == "nats://h:1"
    assert merged.pools == new.pools


def test_pools_of_spark_workers_wait_for_a_restart():
    cluster = {"master": "spark://h:7077"}
    current = settings(cluster=cluster, pools={"old": {"kind": "spark"}})
    new = settings(cluster=cluster, pools={"new": {"kind": "spark"}, "mails": {}})
    merged, waiting = taken_over(current, new)
    assert sorted(merged.pools) == ["mails", "old"]
    assert waiting == ("pools.new.kind", "pools.old.kind")


@pytest.mark.parametrize(
    ("name", "restart"),
    [
        ("prefix", True),
        ("excluded", False),
        ("nats.url", True),
        ("host.name", True),
        ("host.drain_seconds", False),
        ("spark.conf.a.b", True),
        ("pools.mails.sla_seconds", False),
    ],
)
def test_settings_that_wait_for_a_restart(name, restart):
    assert needs_restart(name) is restart

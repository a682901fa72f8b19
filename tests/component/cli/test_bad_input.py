"""Invariant 10 at the command line: refused before anything is sent, in one line, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

ID = "0193a000-0000-7000-8000-000000000000"
WRONG = {
    "no such command": (["jub"], "no such command 'jub'"),
    "no such verb": (["job", "sow"], "no such command 'sow'; did you mean"),
    "no such option": (["queue", "ls", "--depth"], "no such option '--depth'"),
    "missing argument": (["job", "show"], "Missing argument 'ID'"),
    "id with a dot": (["job", "show", "a.b"], "'a.b' is not allowed"),
    "id with a wildcard": (["job", "cancel", "*"], "'*' is not allowed"),
    "id that is too long": (["job", "retry", "x" * 129], "is not allowed"),
    "neither id nor all": (["dead", "retry"], "either IDs of jobs or --all"),
    "both id and all": (["dead", "delete", ID, "--all"], "either IDs of jobs or --all"),
    "filter without all": (["dead", "retry", ID, "--queue", "q"], "filters go with --all"),
    "arguments of any job": (["dead", "retry", "--all", "--arg", "a=1"], "needs --function"),
    "queue name": (["job", "submit", "f", "--queue", "a b"], "'a b' is not allowed"),
    "delay": (["job", "submit", "f", "--delay", "soon"], "expected a length of time"),
    "negative delay": (["job", "submit", "f", "--delay", "-1"], "expected a length of time"),
    "expiry before the delay": (
        ["job", "submit", "f", "--delay", "1h", "--expires", "30m"],
        "would expire after 1800 s, before it is due after 3600 s: give a longer --expires",
    ),
    "a delay of two years": (["job", "submit", "f", "--delay", "800d"], "a delay is 0 s to"),
    "cron expression": (["schedule", "add", "bad", "61 2 * * *", "f"], "is no cron expression"),
    "time zone": (["schedule", "add", "a", "1 2 * * *", "f", "--zone", "Mars"], "no time zone"),
    "argument": (["job", "submit", "f", "--arg", "table"], "expected NAME=VALUE"),
    "unknown job": (["job", "submit", "f"], "no job is called 'f'"),
    "state": (["job", "ls", "--state", "done"], "'done' is not one of"),
    "limit": (["job", "ls", "--limit", "0"], "0 is not in the range"),
    "pool name": (["decision", "ls", "a.>"], "'a.>' is not allowed"),
    "event name": (["events", "tail", "--name", "JobComplete"], "did you mean JobCompleted?"),
    "event key": (["events", "tail", "--key", ">"], "'>' is not allowed"),
    "schema of nothing": (["events", "schema", "Nothing"], "there is no event 'Nothing'"),
    "log level": (["config", "check", "--log-level", "loud"], "'loud' is not one of"),
    "no broker known": (["queue", "ls"], "start 'penstock up' or give --nats-url"),
    "worker of no pool": (["worker"], "give --pool NAME"),
    "worker and a command": (["worker", "--pool", "a", "ls"], "takes no command"),
    "nothing to run": (["up"], "there is no pool to run; add a table [pools.NAME]"),
    "no such file": (["config", "show", "--config", "nowhere.toml"], "nowhere.toml: no such file"),
    "nul character": (["job", "show", "a\0b"], "is not allowed"),
}


@pytest.mark.parametrize(("arguments", "expected"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(penstock, arguments, expected) -> None:
    said = penstock(*arguments)
    assert (said.exit_code, said.stdout) == (2, "")
    [line] = said.stderr.splitlines()
    assert line.startswith("penstock: ")
    assert expected in line


@pytest.mark.parametrize("path", [(), ("job",), ("config",)], ids=" ".join)
def test_a_noun_alone_shows_what_can_be_done_with_it(penstock, path) -> None:
    said = penstock(*path)
    assert (said.exit_code, said.stdout) == (2, "")
    assert "Usage: " in said.stderr


def test_a_wrong_setting_names_the_nearest_known_one(penstock) -> None:
    Path("penstock.toml").write_text("[nats]\nurls = 'nats://127.0.0.1:4222'\n")
    said = penstock("config", "check")
    assert said.exit_code == 2
    assert "did you mean 'url'?" in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_an_unknown_pool_lists_the_known_ones(penstock) -> None:
    Path("penstock.toml").write_text("[pools.reports]\n[pools.mails]\n")
    said = penstock("worker", "--pool", "mail", "--nats-url", "nats://127.0.0.1:1")
    assert (said.exit_code, "configured pools: reports, mails" in said.stderr) == (2, True)


def test_a_module_that_cannot_be_imported_is_named(penstock) -> None:
    Path("penstock.toml").write_text("[jobs]\nmodules = ['no_such_module']\n")
    said = penstock("job", "submit", "no_such_module.f")
    assert said.exit_code == 2
    assert "No module named 'no_such_module'" in said.stderr


def test_a_broker_that_is_not_there_is_a_failure_with_a_next_step(penstock) -> None:
    Path("penstock.toml").write_text("[nats]\nconnect_timeout_seconds = 0.1\n")
    said = penstock("queue", "ls", "--nats-url", "nats://127.0.0.1:1")
    assert said.exit_code == 1
    [line] = said.stderr.splitlines()
    assert "nats://127.0.0.1:1" in line
    assert "penstock up" in line


def test_a_traceback_only_when_asked_for(penstock, monkeypatch) -> None:
    assert "Traceback" not in penstock("job", "show", "a.b").output
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert penstock("job", "show", "a.b").exception is not None
    assert penstock("config", "check").exit_code == 0  # the variable is no setting

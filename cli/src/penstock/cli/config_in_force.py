"""`penstock config diff` and `reload`: the file against what each service runs with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.config_remarks import check_strategies, judge
from penstock.cli.errors import FAILED, Refused
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.topology import pools
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.operations.settings_in_force import SettingsInForce, services

PATIENCE_SECONDS = 15.0
"""How long `reload` waits for the services' answers."""
_LOOK_SECONDS = 0.1
_NO_SERVICE = (
    "no running service has published its settings; services with another broker (nats.url) take a "
    "new address over when they are restarted"
)


class DriftRow(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that a service runs with, and that the file has otherwise."""

    service: str
    host: str
    pid: int
    name: str
    file: Any
    in_force: Any
    restart: bool


COLUMNS = (
    Column("service", lambda row: f"{row.service} on {row.host}"),
    Column("setting", lambda row: row.name, rank=1),
    Column("file", lambda row: _shown(row.file), sentence=True),
    Column("in force", lambda row: _shown(row.in_force), sentence=True),
    Column("needs", lambda row: "a restart" if row.restart else "config reload", rank=1),
)


@click.command(cls=Command, example="penstock config diff --config penstock.toml --json")
@click.pass_context
def diff(ctx: click.Context) -> None:
    """Compare the settings here with what each running service works with.

    Exit code 1 where they differ, or where a service refused to reload. What may differ between
    machines (addresses, keys, folders) is not compared. What a service has from a variable of its
    environment needs a restart: under `penstock up` also nats.url and host.run_dir.
    """
    session: Session = ctx.obj
    records = session.run(lambda bus, settings: services(bus, Subjects(settings.prefix)))
    settings = session.settings()
    rows = [row for record in records for row in drift(record, settings)]
    refused = [record for record in records if record.refused]
    if session.as_json:
        write_json({"services": [_service(record) for record in records], "differences": rows})
    else:
        _print(session, records, rows)
        _note_held(records, settings)
    if rows or refused:
        ctx.exit(FAILED)


def _service(record: SettingsInForce) -> dict[str, Any]:
    """A service without its settings: these are shown where they differ."""
    return {
        "service": record.service,
        "host": record.host,
        "pid": record.pid,
        "at": record.at,
        "comparable": record.settings is not None,
        "refused": record.refused,
        "waiting": record.waiting,
    }


def drift(record: SettingsInForce, settings: Settings) -> list[DriftRow]:
    """The differences of one service."""
    return [
        DriftRow(
            service=record.service,
            host=record.host,
            pid=record.pid,
            name=change.name,
            file=change.file,
            in_force=change.in_force,
            restart=change.restart and record.service == "executor",
        )
        for change in record.differences(settings)
    ]


def _print(session: Session, records: Sequence[SettingsInForce], rows: list[DriftRow]) -> None:
    for record in records:
        if record.refused:
            note(f"{record.name} refused to reload: {record.refused}")
        if record.settings is None:
            note(f"{record.name} has too many settings to publish: they cannot be compared")
    if rows:
        write_rows(session, rows, COLUMNS, "")
    elif records:
        write_line(f"{len(records)} services run with these settings")
    else:
        note(_NO_SERVICE)


@click.command(cls=Command, example="penstock config reload && penstock config diff")
@click.option(
    "--no-import", is_flag=True, help="Do not import jobs.modules, where they are not installed."
)
@click.pass_context
def reload(ctx: click.Context, no_import: bool) -> None:
    """Have every service read its settings file and variables anew.

    Each service reads its own file, on its own machine, and keeps its settings where the new ones
    cannot be used. SIGHUP does the same for one process. settings.md lists what waits for a
    restart of the executors; what a service has from a variable of its environment waits for its
    own, under `penstock up` also nats.url and host.run_dir. Exit code 1 where a service refused or
    did not answer.

    No service is asked where `penstock config check --offline` refuses the settings here: exit
    code 2.
    """
    session: Session = ctx.obj
    _refuse_errors(session.settings(), no_import)

    async def request(bus: Bus, settings: Settings) -> tuple[list[SettingsInForce], list[str]]:
        subjects = Subjects(settings.prefix)
        before, asked_at = await services(bus, subjects), utc_now()
        await bus.signal(subjects.settings_reload())
        expected = {record.key for record in before}
        answers: dict[tuple[str, str, int], SettingsInForce] = {}
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while expected - answers.keys() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            after = await services(bus, subjects)
            answers = {one.key: one for one in after if one.at > asked_at}
        silent = [record.name for record in before if record.key not in answers]
        return [answers[key] for key in sorted(answers)], silent

    answers, silent = session.run(request)
    if session.as_json:
        write_json({"services": [_service(answer) for answer in answers], "silent": silent})
    else:
        _print_answers(answers, silent)
        _note_held(answers, session.settings())
    if silent or any(answer.refused for answer in answers) or not answers:
        ctx.exit(FAILED)


def _refuse_errors(settings: Settings, no_import: bool) -> None:
    """Measurements do not count: settings that help an overloaded installation may come in."""
    configured = pools(settings)
    check_strategies(configured)
    remarks = judge(settings, configured, no_import=no_import)
    if errors := [remark.text for remark in remarks if remark.level == "error"]:
        advice = "nothing was reloaded; see 'penstock config check'"
        raise Refused("; ".join([*errors, advice]))


def _print_answers(answers: Sequence[SettingsInForce], silent: Sequence[str]) -> None:
    for answer in answers:
        if answer.refused:
            write_line(f"{answer.name}: keeps its settings: {answer.refused}")
        elif answer.waiting:
            write_line(f"{answer.name}: reloaded; after a restart: {', '.join(answer.waiting)}")
        else:
            write_line(f"{answer.name}: reloaded")
    for name in silent:
        write_line(f"{name}: no answer within {PATIENCE_SECONDS:g} s")
    if not answers and not silent:
        note(_NO_SERVICE)


def _note_held(records: Sequence[SettingsInForce], settings: Settings) -> None:
    """Names what no reload changes: above all the broker's address and ``host.run_dir``."""
    held: dict[str, list[str]] = {}
    for record in records:
        for name in record.held_by_variables(settings):
            held.setdefault(name, []).append(record.service)
    for name, services_of in held.items():
        note(
            f"{name}: {', '.join(services_of)} has it from a variable of its environment, which "
            "penstock up sets, too: another value needs a restart"
        )


def _shown(value: Any) -> str:
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)

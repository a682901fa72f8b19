"""Every command of `penstock` with the keys that people have, on an installation that runs.

A command works, or says at once which right its key lacks. What is refused to an operator's key by
the broker is a mistake of ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.integration.guarded_site import Site, running_site
from tests.integration.sample_jobs import hold, need, note
from tests.integration.workflow_jobs import brief, linger
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.cli.main import cli
from penstock.events.subjects import Subjects
from penstock.jobs import Client, NamedWorkflow, SignalWait, Step
from penstock.operations.console_access import ConsoleAccess

JOBS = "tests.integration.sample_jobs"
WORKFLOWS = "tests.integration.workflow_jobs"
WITHIN_SECONDS = 20.0
OPERATOR, DISPATCHER, SUBSCRIBER = "operator", "dispatcher", "subscriber"
ALL, DISPATCHING, OPERATING = (
    (OPERATOR, DISPATCHER, SUBSCRIBER),
    (OPERATOR, DISPATCHER),
    (OPERATOR,),
)
VERBS: dict[str, tuple[str, ...]] = {
    "batch cancel {batch_held}": DISPATCHING,
    "workflow signal {graph_waiting} go 2": DISPATCHING,
    "graph cancel {graph_held}": DISPATCHING,
    f'graph chain \'{JOBS}.note {{{{"diary": "{{diary}}", "name": "cli"}}}}\'': DISPATCHING,
    "graph run {definition} --no-wait": DISPATCHING,
    "pool ls": OPERATING,
    "pool hold work --at-least 0 --for 5m": OPERATING,
    "pool release work": OPERATING,
    "host ls": OPERATING,
    "host pause elsewhere --force": OPERATING,
    "host drain elsewhere --force": OPERATING,
    "host resume elsewhere --force": OPERATING,
    "worker ls": OPERATING,
    "worker drain gone": OPERATING,
    "queue ls": OPERATING,
    "queue pause work --reason test": OPERATING,
    "queue resume work": OPERATING,
    f"job submit {JOBS}.note -a diary={{diary}} -a name=cli --wait": DISPATCHING,
    "job ls": ALL,
    "job show {done}": ALL,
    "job logs {done}": OPERATING,
    "job cancel {late} --reason test": DISPATCHING,
    **{
        f"job submit {JOBS}.note -a diary={{diary}} -a name=cli --queue parked --delay {delay}": (
            DISPATCHING
        )
        for delay in ("1h", "2h")
    },
    f"job cancel --function {JOBS}.note --queue parked --limit 1 --yes": DISPATCHING,
    "job move --from parked --to parked-too --force --yes": OPERATING,
    "queue purge parked --yes": DISPATCHING,
    "job retry {dead}": OPERATING,
    "dead ls": DISPATCHING,
    "dead groups": DISPATCHING,
    "dead show {dead_two}": DISPATCHING,
    "dead retry {dead_two}": OPERATING,
    "dead delete {dead_three} --yes": OPERATING,
    "batch ls": ALL,
    "batch show {batch}": ALL,
    "batch watch {batch}": ALL,
    "batch retry-failed {batch_failed}": OPERATING,
    "graph ls": ALL,
    "graph show {graph}": ALL,
    "graph retry-failed {graph_failed}": OPERATING,
    f"workflow run {WORKFLOWS}.brief -a number=1 --by-name --queue work": DISPATCHING,
    "workflow ls": ALL,
    "workflow ls --waiting-longer 0s": ALL,
    "workflow show {workflow}": ALL,
    "workflow why {workflow}": ALL,
    "workflow signal {workflow} go 2": DISPATCHING,
    f"workflow replay --function {WORKFLOWS}.linger": ALL,
    "workflow fix {blocked} --accept": OPERATING,
    "workflow pause {workflow}": DISPATCHING,
    "workflow resume {paused}": DISPATCHING,
    "workflow cancel {workflow}": DISPATCHING,
    "workflow wait {brief}": ALL,
    "workflow check {definition}": ALL,
    "workflow define {definition}": OPERATING,
    "workflow definitions": OPERATING,
    "workflow definition {role}": OPERATING,
    "workflow undefine {role}": OPERATING,
    "recover": OPERATING,
    "recover --workflows --dry-run": ALL,
    f"schedule add {{role}} '30 2 * * *' {JOBS}.note -a diary={{diary}} -a name=tick": OPERATING,
    "schedule ls": OPERATING,
    "schedule sync --dry-run": OPERATING,
    "schedule sync": OPERATING,
    "schedule diff": OPERATING,
    "schedule show {role}": OPERATING,
    "schedule pause {role}": OPERATING,
    "schedule resume {role}": OPERATING,
    "schedule run-now {role}": OPERATING,
    "schedule rm {role}": OPERATING,
    "decision ls": ALL,
    "decision explain work": OPERATING,
    "events tail --since 1h --limit 3": ALL,
    "events tail --no-follow --noun job": ALL,
    "events schema JobCompleted": ALL,
    "health": OPERATING,
    "replay --processes 1": OPERATING,
    "verify --processes 1": OPERATING,
    "config check": OPERATING,
    "config show": ALL,
    "config diff": OPERATING,
    "config reload": OPERATING,
    "deploy check metrics": OPERATING,
    "reload --no-wait": OPERATING,
    "api token create {role} --scope read": OPERATING,
    "api token ls": OPERATING,
    "api token revoke {token}": OPERATING,
    "api account add {role} --role viewer": OPERATING,
    "api account link {role}": OPERATING,
    "api account role {role} --role operator": OPERATING,
    "api account disable {role}": OPERATING,
    "api account enable {role}": OPERATING,
    "api account ls": OPERATING,
    "api account rm {role}": OPERATING,
    "api audit verify": OPERATING,
    f"api mute {JOBS}.note": OPERATING,
    "api muted": OPERATING,
    f"api unmute {JOBS}.note": OPERATING,
    "job tag {done} cli": DISPATCHING,
    "job untag {done} cli": ALL,  # who may not tag a job finds none to remove
}
"""Commands, and the keys with which they work; one after the other, as the first make what the
later ones use."""
ELSEWHERE = (
    *(
        "init",
        "up",
        "metrics",
        "decider",
        "executor",
        "orchestrator",
        "pipeline",
        "outbox",
        "scaler",
        "deploy key",
    ),
    *("deploy keys", "deploy limit", "report", "simulate", "tune"),
    *("console", "api rows show", "api rows rebuild"),
)
"""Services, and commands on files, the lake, a recording or a console."""
GATE = "gate"
MEASURED_IF_PERMITTED = "config check"
"""Works without the broker as well; where it is refused, it says so in a note."""
DISPENSABLE = ("JS.API.STREAM.MSG.DELETE.JOBS", "JS.API.STREAM.MSG.GET.JOBS")
"""What commands try and do without: a dispatcher's cancelled jobs leave messages, which the workers
that come to them remove, and a subscriber does not see why a job was handed on."""
STATES = {"health": {0, 3, 4, 5}, "worker drain gone": {2}}
"""Exit codes of a command that worked."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("guarded")) as site:
        asyncio.run(_ready(site))
        yield site


async def _ready(site: Site) -> None:
    """Returns when each service has spoken."""
    bus = await connect(site.settings(OPERATOR))
    subjects = Subjects("penstock")

    async def spoke() -> bool:
        decided = subjects.events(noun="pool", name="ScalingDecisionMade")
        wanted = (
            (subjects.snapshots_stream, subjects.pool_snapshot("*")),
            (subjects.snapshots_stream, subjects.host_snapshot("*")),
            (subjects.events_stream, decided),
            (subjects.state_stream, subjects.state("health", "report")),
        )
        return all([await bus.last(*place) is not None for place in wanted])

    try:
        await eventually(spoke, 60, "what each service leaves")
    finally:
        await bus.close()


async def _made(site: Site, folder: Path, role: str) -> dict[str, str]:
    """Jobs, batches and graphs in each state, by what the commands call them."""
    diary, missing = str(folder / "diary"), str(folder / "missing")
    good, bad = note(diary, role), need(diary, role, missing)
    held = hold(diary, role, str(folder / GATE))
    definition = folder / "definition.toml"
    definition.write_text(
        f'name = "{role}"\nversion = 1\n[[steps]]\nname = "only"\nfunction = "{JOBS}.note"\n'
        'arguments = {diary = "", name = ""}\n'
    )
    async with Client.connect(site.settings(OPERATOR)) as client:
        ids = {"role": role, "diary": diary, "definition": str(definition)}
        ids["done"] = await client.dispatch(good)
        for name in ("dead", "dead_two", "dead_three"):
            ids[name] = await client.dispatch(bad)
        ids["late"] = await client.dispatch(good, delay=3600)
        ids["batch"] = await client.batches.create([good])
        ids["batch_failed"] = await client.batches.create([bad])
        ids["graph"] = await client.graphs.chain([good])
        ids["graph_failed"] = await client.graphs.chain([bad])
        for name in ("done", "dead", "dead_two", "dead_three"):
            await client.wait(ids[name], 60)
        for name in ("batch", "batch_failed"):
            await client.batches.wait(ids[name], 60)
        for name in ("graph", "graph_failed"):
            await client.graphs.wait(ids[name], 60)
        ids["workflow"] = await client.dispatch(linger(number=1))
        ids["paused"] = await client.dispatch(linger(number=1))
        await client.workflows.pause(ids["paused"])
        ids["brief"] = await client.dispatch(brief(number=1))
        ids["blocked"] = await client.dispatch(NamedWorkflow("gone.fulfil", queue="work")())

        async def is_blocked() -> bool:
            return bool((await client.workflows.get(ids["blocked"])).blocked)

        await eventually(is_blocked, 60, "a workflow whose code is missing")
        bus = await connect(site.settings(OPERATOR))
        access = ConsoleAccess(bus, Subjects("penstock"), "test")
        ids["token"] = (await access.create_token("old", ["read"], owner="test"))[1].token_id
        await bus.close()
        ids["batch_held"] = await client.batches.create([held])
        ids["graph_held"] = await client.graphs.chain([held])
        ids["graph_waiting"] = await client.graphs.dispatch({"go": Step(wait=SignalWait())})
    return ids


@contextmanager
def _called_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def _call(argv: list[str]) -> Result:
    """Raises TimeoutError into a command that hangs."""

    def hangs(*_: Any) -> None:
        raise TimeoutError(f"{argv} hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, WITHIN_SECONDS)
    try:
        return CliRunner().invoke(cli, argv)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("role", ALL)
def test_each_command_works_or_says_which_right_is_missing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    folder = site.shell(role, tmp_path).folder
    ids = asyncio.run(_made(site, tmp_path, role))
    wrong = []
    with _called_in(folder, monkeypatch):
        for verb, roles in VERBS.items():
            refused_before = len(site.broker.violations())
            done = _call(shlex.split(verb.format(**ids)))
            refused = [
                violation
                for violation in site.broker.violations()[refused_before:]
                if not violation.endswith(DISPENSABLE)
            ]
            if role in roles:
                right = done.exit_code in STATES.get(verb, {0}) and not refused
            else:
                code = 0 if verb == MEASURED_IF_PERMITTED else 1
                right = done.exit_code == code and "may not publish to" in done.stderr
            if not right or "Traceback" in done.stderr:
                wrong.append((verb, done.exit_code, done.stdout[-300:], done.stderr, refused))
    (tmp_path / GATE).touch()  # for what this key could not cancel
    assert not wrong, wrong
    if role != OPERATOR:
        assert asyncio.run(_went_again(site, ids)) == []


async def _went_again(site: Site, ids: dict[str, str]) -> list[str]:
    """What ended and a refused command lets go again all the same."""
    async with Client.connect(site.settings(OPERATOR)) as client:
        jobs = [await client.job(ids[name]) for name in ("dead", "dead_two")]
        batch = await client.batches.show(ids["batch_failed"])
        graph = await client.graphs.show(ids["graph_failed"])
    again = [view.record.id for view in jobs if view.record.life > 1]
    return [*again, *(whole.id for whole in (batch, graph) if whole.round)]


def test_a_worker_is_drained_and_says_so_when_it_ends(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site.shell(OPERATOR, tmp_path).folder
    drained = ""
    with _called_in(folder, monkeypatch):
        while not drained:  # one that was listed may have ended since
            rows = json.loads(_call(["worker", "ls", "--json"]).stdout)
            names = [row["worker"] for row in rows]
            calls = ((name, _call(["worker", "drain", name, "--reason", "test"])) for name in names)
            drained = next((name for name, done in calls if done.exit_code == 0), "")
    asyncio.run(_stopped(site, drained))


async def _stopped(site: Site, worker: str) -> None:
    bus, subjects = await connect(site.settings(OPERATOR)), Subjects("penstock")

    async def has_stopped() -> bool:
        subject = subjects.events("worker", worker, "WorkerStopped")
        stored = await bus.last(subjects.events_stream, subject)
        return stored is not None and json.loads(stored.body)["cause"] == "drained"

    await eventually(has_stopped, 60, "the end of the drained worker")
    await bus.close()


def test_health_leaves_nothing_on_the_broker(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site.shell(OPERATOR, tmp_path).folder
    written = asyncio.run(_sequence(site, "JOBS"))
    refused = site.broker.violations()
    with _called_in(folder, monkeypatch):
        done = _call(["health", "--json"])
    assert done.exit_code in STATES["health"], done.output
    assert "refused" not in done.stderr
    assert site.broker.violations() == refused
    assert asyncio.run(_left(site, written)) == []


async def _sequence(site: Site, stream: str) -> int:
    bus = await connect(site.settings(OPERATOR))
    last = (await bus.extent(stream)).last
    await bus.close()
    return last


async def _left(site: Site, after: int) -> list[str]:
    """Probes among what was stored since; the orchestrator removes its own at once."""
    bus = await connect(site.settings(OPERATOR))
    subjects = Subjects("penstock")
    probes = (
        ("JOBS", subjects.schedule("_probe", "health"), after + 1),
        ("STATE", subjects.state("health", "probe"), 1),
    )

    async def none_there() -> bool:
        return not [s for p in probes for s in await bus.history(p[0], p[1], start=p[2])]

    try:
        await eventually(none_there, 5, "the end of the orchestrator's own probe")
    except AssertionError as error:
        return [str(error)]
    finally:
        await bus.close()
    return []


def test_every_command_is_tried() -> None:
    tried = {" ".join(verb.split()[:words]) for verb in VERBS for words in (1, 2, 3)}
    names = [name for name in _names(cli, []) if not name.startswith(ELSEWHERE)]
    assert [name for name in names if name not in tried] == []


def _names(command: click.Command, path: list[str]) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _names(below, [*path, name])

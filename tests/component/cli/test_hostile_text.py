"""Names, keys, reasons and errors from outside neither forge lines nor steer the terminal."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unicodedata import category

import msgspec
import pytest
from tests.component.cli.in_memory import InMemory

import penstock.cli
from penstock.bus.protocol import Outgoing
from penstock.events.catalogue import LOGGED
from penstock.jobs import StepFailed, WorkflowContext, job, workflow
from penstock.jobs.queues.queue_messages import DeadLetter
from penstock.jobs.workflows.declared.definition import DeclaredStep, Definition, SignalWait
from penstock.testing import Bench

HOSTILE = "\r\nit is approved\n\tx\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066\u2028\u200b\x85"
STRUCTURE = {"type", "kind", "key_field", "id", "cron", "zone", "call"}
"""Fields whose text decides what an event is, not only how it reads."""
HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@job(queue="cards", name="hostile.charge", tries=1)
def charge(order: int) -> str:
    if order < 0:
        raise ValueError("no such order")
    return f"receipt {order}"


@workflow(name="hostile.fulfil", tries=1)
async def fulfil(ctx: WorkflowContext, order: int) -> str:
    ctx.set_status(stage="packed")
    await ctx.step("rate", str, order)
    await ctx.gather(charge(order=1), charge(order=2))
    await ctx.map([charge(order=3)])
    try:
        await ctx.run(charge(order=-1))
    except StepFailed:
        await ctx.sleep(1)
    approved = await ctx.wait_signal("approved", bool, timeout=timedelta(days=1))
    if approved:
        raise ValueError("approved by mistake")
    return "refused"


DECLARED = Definition(
    name="orders",
    steps=(
        DeclaredStep(name="charge", function=charge.name, arguments={"order": 1}),
        DeclaredStep(name="paid", needs=("charge",), wait=SignalWait(signal="payment")),
        DeclaredStep(name="again", function=charge.name, arguments={"order": -1}, may_fail=True),
    ),
)
CODED = ("patient", "wrong", "stopped", "dozing")
BOARDS = (
    *(("workflow", verb, name) for verb in ("show", "why") for name in (*CODED, "declared")),
    *(("job", "show", name) for name in CODED),
    ("workflow", "ls"),
    ("workflow", "ls", "--waiting-longer", "0s"),
    ("workflow", "ls", "--state", "paused"),
    ("workflow", "ls", "--declared"),
    ("workflow", "definitions"),
    ("job", "ls"),
    ("batch", "show", "many"),
    ("batch", "ls"),
    ("graph", "show", "declared"),
    ("graph", "ls"),
    ("dead", "ls"),
    ("dead", "groups"),
    ("dead", "show", "wrong"),
    ("events", "tail", "--no-follow", "--since", "1d"),
    ("recover", "--workflows", "--dry-run"),
)


async def lived(bench: Bench) -> None:
    """A history with every kind of workflow, of steps and of ends, as far as it has one."""
    client = bench.client
    for name in CODED:
        await client.dispatch(fulfil(order=7), job_id=name)
    await client.definitions.define(DECLARED)
    await client.definitions.run("orders", graph_id="declared", title="a title")
    await client.batches.create(
        [charge(order=1), charge(order=-1)], batch_id="many", title="a title"
    )
    await bench.run_pending()
    await bench.advance(2)
    await bench.run_pending()
    await client.workflows.signal("wrong", "approved", True)
    await client.workflows.signal("patient", "other", 1)
    await client.workflows.signal("patient", "approved", "perhaps")
    await bench.run_pending()
    await client.workflows.cancel("stopped", "the customer called")
    await bench.run_pending()
    await client.workflows.pause("dozing", "the gateway is down")
    await client.graphs.pause("declared", "the gateway is down")


def planted(value: Any, fixed: frozenset[str], path: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Paths of all texts that may be anything, as far as the names of fields tell."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in STRUCTURE:
                yield from planted(inner, fixed, (*path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from planted(inner, fixed, (*path, place))
    elif isinstance(value, str) and value not in fixed:
        yield path


def with_hostile(body: bytes, fixed: frozenset[str], decode: Callable[[bytes], Any]) -> bytes:
    """An event or dead letter whose texts end with hostile characters where its type permits."""
    event = msgspec.json.decode(body)
    for path in planted(event, fixed):
        *outer, name = path
        holder = event
        for part in outer:
            holder = holder[part]
        text = holder[name]
        holder[name] = f"{text}{HOSTILE}"
        try:
            decode(msgspec.json.encode(event))
        except ValueError:
            holder[name] = text  # a time, bytes, or a word of a list
    return msgspec.json.encode(event)


@pytest.fixture(scope="module")
def sessions() -> Iterator[tuple[InMemory, InMemory]]:
    """One history twice: as it happened, and with hostile texts in its events."""
    plain, forged = InMemory(), InMemory()
    plain.loop.run_until_complete(lived(plain.bench))
    source, target = plain.bench.bus, forged.bench.bus
    letter = msgspec.json.Decoder(DeadLetter).decode
    streams = {source.subjects.events_stream: LOGGED.decode, source.subjects.dead_stream: letter}
    for stream, decode in streams.items():
        for stored in source.stored(stream, ">"):
            fixed = frozenset(stored.subject.split(".")) | {"many", "declared", *CODED}
            body = with_hostile(stored.body, fixed, decode)
            forged.loop.run_until_complete(target.append(Outgoing(stored.subject, body)))
    forged.loop.run_until_complete(forged.bench.advance(2))
    for stored in source.stored(source.subjects.state_stream, ">"):
        forged.loop.run_until_complete(target.append(Outgoing(stored.subject, stored.body)))
    yield plain, forged
    plain.loop.close()
    forged.loop.close()


@pytest.mark.parametrize("board", BOARDS, ids=" ".join)
def test_no_text_of_an_event_forges_a_line(
    sessions: tuple[InMemory, InMemory], board: tuple[str, ...]
) -> None:
    plain, forged = (session.call(*board) for session in sessions)
    assert (plain.exit_code, forged.exit_code) == (0, 0), (plain.output, forged.output)
    assert len(plain.output) > 0
    assert _own_lines(forged.output) == _own_lines(plain.output), forged.output
    harmful = {char for char in forged.output if category(char) in HARMFUL} - {"\n"}
    assert not harmful, (harmful, forged.output)


def _own_lines(output: str) -> int:
    """Lines that are not marked as those of a traceback."""
    return sum(not line.startswith("  | ") for line in output.split("\n"))


def test_the_history_says_something_hostile_in_every_board(
    sessions: tuple[InMemory, InMemory],
) -> None:
    forged = sessions[1]
    silent = {board for board in BOARDS if "it is approved" not in forged.call(*board).output}
    assert silent <= {("workflow", "definitions"), ("recover", "--workflows", "--dry-run")}


def test_commands_print_through_one_module() -> None:
    """Which is where hostile characters are replaced: see :mod:`penstock.cli.output`."""
    allowed = {"output.py", "main.py"}
    folder = Path(penstock.cli.__file__).parent
    prints = [
        f"{path.relative_to(folder)}:{node.lineno}"
        for path in folder.rglob("*.py")
        if path.name not in allowed
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _prints(node.func)
    ]
    assert prints == []


def _prints(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "print"
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and (function.value.id, function.attr) in {("click", "echo"), ("click", "secho")}
    )

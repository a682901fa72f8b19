"""`penstock workflow check` on source code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.component.cli.conftest import Penstock

HEAD = """\
import asyncio, datetime as dt, os, random, time, uuid
from datetime import datetime, timedelta
from pathlib import Path
import httpx
from penstock.jobs import WorkflowContext, job, workflow

COUNTRIES = {"de": 1}
SEEN = []
LIMIT = 3
LIMIT = 4

@job
def charge(order: int) -> str:
    SEEN.append(time.time())
    return "ok"

def later(days: int) -> datetime:
    return datetime.now() + timedelta(days)

def plain(days: int) -> timedelta:
    return timedelta(days)

async def part(ctx: WorkflowContext, order: int) -> str:
    return await ctx.run(charge(order=order))

async def fetch(url: str) -> str:
    return (await httpx.get(url)).text
"""


def source(body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return (
        f"{HEAD}\n@workflow()\nasync def fulfil(ctx: WorkflowContext, order: int) -> None:\n{lines}"
    )


FIRST_LINE = HEAD.count("\n") + 4

GOOD = [
    "await ctx.run(charge(order=1), tries=3, timeout=2.5, delay=timedelta(days=1), tags=['a'],\n"
    "  priority='high', backoff=Backoff(first_seconds=0.2))",
    "await ctx.run(charge(order=1), tries=order, backoff=None, timeout=order)",
    "await ctx.run(charge(order=order))",
    "await ctx.step('rate', time.time)",
    "await ctx.step('rate', lambda: random.random())",
    "deadline = ctx.now() + timedelta(days=1)",
    "await ctx.gather(part(ctx, 1), ctx.sleep(3), charge(order=2))",
    "await part(ctx, order)",
    "chance = ctx.random()\nchance.choice([1, 2])",
    "random = ctx.random()\nrandom.choice([1, 2])",
    "code = COUNTRIES['de']",
    "names = []\nnames.append(order)\nnames[0] = 1",
    "for name in sorted({1, 2}):\n    await ctx.sleep(name)",
    "key = uuid.uuid5(uuid.NAMESPACE_URL, str(order))",
    "awaited = [ctx.run(charge(order=n)) for n in range(3)]\nawait ctx.gather(*awaited)",
    "begun = ctx.sleep(3)\nawait begun",
    "plain(3)",
    "seen = []\nawait ctx.step('s', lambda: [*seen, 1])",
    "def count() -> int:\n    seen = []\n    seen.append(1)\n    return len(seen)\n"
    "await ctx.step('s', count)",
    "await ctx.step('s', lambda seen: seen.append(1), [])",
    "def pay() -> object:\n    return ctx.run(charge(order=1))\nawait ctx.gather(pay())",
    "await (ctx.sleep(1) if order else ctx.run(charge(order=1)))",
    "await ctx.wait_signal('approved', timeout=3)",
    "options = {'timeout': 3}\nawait ctx.wait_signal('approved', **options)",
    "await ctx.wait_signal('approved')  # penstock: ignore[endless]",
    "await ctx.race(ctx.wait_signal('approved'), ctx.sleep(5))",
    "try:\n    await ctx.run(charge(order=1), compensate=charge(order=2))\n"
    "except (StepFailed, Cancelled):\n    await ctx.compensate()",
    "try:\n    await ctx.run(charge(order=1), compensate=charge(order=2))\n"
    "finally:\n    await ctx.compensate()",
    "ctx.set_status(stage='begun')",
    "async def nested() -> None:\n    await ctx.sleep(1)\nawait ctx.gather(nested())",
    "path = Path('orders') / str(order)",
    "time.time()  # penstock: ignore[clock]",
    "time.time()  # penstock: ignore",
    "httpx.get('x', timeout=\n  3)  # penstock: ignore[network, files]",
]


@pytest.mark.parametrize("body", GOOD)
def test_what_is_the_same_each_time_is_no_finding(
    penstock: Penstock, tmp_path: Path, body: str
) -> None:
    (tmp_path / "orders.py").write_text(source(body))
    result = penstock("workflow", "check", "orders.py")
    assert result.exit_code == 0, result.output
    assert "1 workflow, nothing is wrong" in result.output


BAD = [
    ("await ctx.run(charge(order=1), backoff=0.2)", "option", "backoff=Backoff(first_seconds=0.2)"),
    ("await ctx.run(charge(order=1), backoff=[1, 5])", "option", "backoff=Backoff("),
    ("await ctx.run(charge(order=1), tries='3')", "option", "whole tries="),
    ("await ctx.run(charge(order=1), tries=True)", "option", "whole tries="),
    ("await ctx.run(charge(order=1), timeout='5m')", "option", "seconds or a timedelta"),
    ("await ctx.run(charge(order=1), delay=-1)", "option", "seconds or a timedelta"),
    ("await ctx.run(charge(order=1), priority='urgent')", "option", "a list for tags="),
    ("await ctx.run(charge(order=1), tags='night')", "option", "a list for tags="),
    ("time.time()", "clock", "ctx.now()"),
    ("dt.datetime.now()", "clock", "ctx.now()"),
    ("datetime.utcnow()", "clock", "ctx.now()"),
    ("time.sleep(3)", "sleep", "await ctx.sleep(...)"),
    ("await asyncio.sleep(3)", "sleep", "await ctx.sleep(...)"),
    ("random.choice([1])", "random", "ctx.random() or ctx.uuid()"),
    ("uuid.uuid4()", "random", "ctx.random() or ctx.uuid()"),
    ("os.urandom(3)", "random", "ctx.random()"),
    ("region = os.environ['REGION']", "environment", "an argument"),
    ("region = os.environ.get('REGION')", "environment", "an argument"),
    ("region = os.getenv('REGION')", "environment", "an argument"),
    ("httpx.get('x')", "network", "ctx.run"),
    ("await httpx.get('x')", "network", "ctx.run"),
    ("open('orders')", "files", "ctx.run"),
    ("Path('orders').read_text()", "files", "ctx.run"),
    ("os.listdir('.')", "files", "ctx.run"),
    ("os.system('ls')", "process", "a job"),
    ("import subprocess\nsubprocess.run(['ls'])", "process", "a job"),
    ("await asyncio.gather(part(ctx, 1))", "thread", "ctx.gather"),
    ("import threading\nthreading.Thread().start()", "thread", "ctx.gather"),
    ("global SEEN\nSEEN = []", "global", "arguments"),
    ("SEEN.append(order)", "global", "arguments"),
    ("COUNTRIES['fr'] = 2", "global", "arguments"),
    ("count = len(SEEN)", "global", "arguments"),
    ("most = LIMIT", "global", "arguments"),
    ("await client.get('x')", "await", "a coroutine that is given ctx"),
    ("async with client:\n    pass", "await", "ctx.run"),
    ("async for row in rows():\n    pass", "await", "ctx.run"),
    ("ctx.run(charge(order=1))", "unawaited", "await it"),
    ("begun = ctx.run(charge(order=1))", "unawaited", "await it"),
    ("return ctx.run(charge(order=1))", "unawaited", "await it"),
    ("if ctx.wait_signal('approved', timeout=3):\n    pass", "unawaited", "await it"),
    ("if ctx.run(charge(order=1)) == 'ok':\n    pass", "unawaited", "await it"),
    ("text = f'{ctx.run(charge(order=1))}'", "unawaited", "await it"),
    ("seen = []\nawait ctx.step('s', lambda: seen.append(1))", "captured", "returns"),
    ("seen = []\nawait ctx.step('s', seen.append, 1)", "captured", "returns"),
    (
        "import functools\nseen = []\nawait ctx.step('s', functools.partial(seen.append, 1))",
        "captured",
        "returns",
    ),
    (
        "count = 0\ndef more() -> None:\n    nonlocal count\n    count += 1\n"
        "await ctx.step('s', more)",
        "captured",
        "returns",
    ),
    (
        "seen = {}\ndef more() -> None:\n    seen['a'] = 1\nawait ctx.step('s', function=more)",
        "captured",
        "returns",
    ),
    ("for name in {1, 2}:\n    pass", "order", "sorted"),
    ("names = set(range(3))\nfor name in names:\n    pass", "order", "sorted"),
    ("await ctx.gather(*{1, 2})", "order", "sorted"),
    ("names = list(set(range(3)))", "order", "sorted"),
    ("def nested() -> float:\n    return time.time()\nnested()", "clock", "ctx.now()"),
    ("ids = [uuid.uuid4() for _ in range(3)]", "random", "ctx.uuid()"),
    ("await ctx.step('rate', abs, time.time())", "clock", "ctx.now()"),
    ("pass  # penstock: ignore[clok]", "ignore", "--help"),
]


@pytest.mark.parametrize(("body", "rule", "instead"), BAD)
def test_what_differs_is_named_with_what_to_use(
    penstock: Penstock, tmp_path: Path, body: str, rule: str, instead: str
) -> None:
    (tmp_path / "orders.py").write_text(source(body))
    result = penstock("--json", "workflow", "check", "orders.py")
    assert result.exit_code == 1, result.output
    [finding] = json.loads(result.stdout)["findings"]
    assert (finding["rule"], finding["file"]) == (rule, "orders.py")
    assert instead in finding["instead"]
    last = FIRST_LINE + body.count("\n")
    assert FIRST_LINE - 1 <= finding["line"] <= last
    text = penstock("workflow", "check", "orders.py")
    assert f"orders.py:{finding['line']}:{finding['column']}: {rule}: " in text.stdout
    assert "1 workflow: 1 place to mend" in text.stderr


def test_a_signal_that_may_never_be_sent_is_a_warning(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(source("await ctx.wait_signal('approved', bool)"))
    result = penstock("workflow", "check", "orders.py")
    assert result.exit_code == 0, result.output
    assert f"orders.py:{FIRST_LINE}:11: warning: endless: ctx.wait_signal(...) waits" in (
        result.stdout
    )
    assert "1 workflow, nothing is wrong, 1 warning" in result.stdout
    [finding] = json.loads(penstock("--json", "workflow", "check", "orders.py").stdout)["findings"]
    assert (finding["rule"], finding["is_warning"]) == ("endless", True)
    (tmp_path / "orders.py").write_text(source("await ctx.wait_signal('a')\ntime.time()"))
    both = penstock("workflow", "check", "orders.py")
    assert "1 workflow: 1 place to mend, 1 warning" in both.stderr


def test_undoing_that_a_cancelled_workflow_never_reaches_is_a_warning(
    penstock: Penstock, tmp_path: Path
) -> None:
    body = (
        "try:\n    await ctx.run(charge(order=1), compensate=charge(order=2))\n"
        "except StepFailed:\n    await ctx.compensate()"
    )
    (tmp_path / "orders.py").write_text(source(body))
    result = penstock("workflow", "check", "orders.py")
    assert result.exit_code == 0, result.output
    assert f"orders.py:{FIRST_LINE + 1}:15: warning: undo: compensate= undoes nothing" in (
        result.stdout
    )


def test_functions_of_the_module_that_it_calls_are_read_too(
    penstock: Penstock, tmp_path: Path
) -> None:
    (tmp_path / "orders.py").write_text(source("later(3)\nawait fetch('x')"))
    result = penstock("workflow", "check", "orders.py")
    found = [line.split(":")[:4] for line in result.stdout.splitlines()]
    clock = 1 + HEAD.splitlines().index("    return datetime.now() + timedelta(days)")
    network = 1 + HEAD.splitlines().index("    return (await httpx.get(url)).text")
    assert [(int(line), rule.strip()) for _, line, _, rule in found] == [
        (clock, "clock"),
        (network, "network"),
    ]


def test_a_workflow_inside_of_a_function_is_named(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(
        "from penstock.jobs import workflow\n"
        "def make(rate):\n"
        "    @workflow()\n"
        "    async def fulfil(ctx):\n"
        "        await ctx.sleep(rate)\n"
        "    return fulfil\n"
    )
    result = penstock("workflow", "check", "orders.py")
    assert result.exit_code == 1
    assert "closure: workflow fulfil is defined inside of a function" in result.stdout


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shopping"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "orders.py").write_text(source("time.time()"))
    (folder / "bills.py").write_text(source("await ctx.sleep(1)").replace("fulfil", "bill"))
    (folder / "other.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


@pytest.mark.parametrize(
    ("targets", "code", "text"),
    [
        (["shopping.orders"], 1, "1 workflow: 1 place"),
        (["shopping.orders:fulfil"], 1, "clock"),
        (["shopping.bills"], 0, "1 workflow, nothing is wrong"),
        (["shopping.orders", "shopping.bills"], 1, "2 workflows: 1 place"),
        (["./shopping"], 1, "2 workflows: 1 place"),
        (["shopping.other"], 2, "no function there is marked with @workflow"),
        (["shopping.orders:refund"], 2, "no workflow of this name"),
        (["shopping.none"], 2, "expected a module such as shop.orders"),
        (["none.py"], 2, "expected a file that exists"),
        (["none.toml"], 2, "no such file"),
        (["none.toml", "shopping.bills"], 2, "by two calls"),
        (["../../etc/passwd"], 2, "expected a module"),
        ([], 2, "name a module, a file or a definition"),
    ],
)
def test_targets(
    penstock: Penstock, package: Path, targets: list[str], code: int, text: str
) -> None:
    result = penstock("workflow", "check", *targets)
    assert result.exit_code == code, result.output
    assert text in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_by_default_the_modules_of_the_settings_are_checked(
    penstock: Penstock, package: Path
) -> None:
    (package.parent / "penstock.toml").write_text('[jobs]\nmodules = ["shopping.bills"]\n')
    assert "1 workflow, nothing is wrong" in penstock("workflow", "check").output


@pytest.mark.parametrize("text", ["def (", "\x00", "x = '"])
def test_what_is_no_python_is_named(penstock: Penstock, tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    result = penstock("workflow", "check", "broken.py")
    assert result.exit_code == 2
    assert "broken.py" in result.output


def test_each_rule_stands_in_the_help(penstock: Penstock) -> None:
    from penstock.cli.workflows.lint.rules import IGNORE, RULES

    shown = " ".join(penstock("workflow", "check", "--help").output.split())
    for rule in RULES:
        assert rule is IGNORE or rule.name in shown


@pytest.mark.parametrize("place", ["examples/workflows", "tests/integration/workflow_jobs.py"])
def test_the_examples_have_no_finding(penstock: Penstock, place: str) -> None:
    result = penstock("workflow", "check", str(Path(__file__).parents[3] / place))
    assert "nothing is wrong" in result.output


def test_a_place_that_two_workflows_reach_is_named_once(penstock: Penstock, tmp_path: Path) -> None:
    other = "\n@workflow()\nasync def other(ctx: WorkflowContext) -> None:\n    later(1)\n"
    (tmp_path / "orders.py").write_text(source("later(3)") + other)
    result = penstock("workflow", "check", "orders.py")
    assert "2 workflows: 1 place" in result.stderr

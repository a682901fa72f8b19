"""The examples of docs/workflow-versions.md do what the page says."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.jobs import State, registry
from penstock.testing import Bench, WorkflowRun

PAGE = (Path(__file__).parents[3] / "docs/workflow-versions.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"```python\n# (\w+)\n(.*?)```", PAGE, re.DOTALL))
NAME = "shop.fulfil"
Deploy = Callable[[str], Any]


@pytest.fixture
def deploy() -> Iterator[Deploy]:
    """Workers with the code of a block of the page, or another text, and none of the others."""
    before = dict(registry.REGISTRY)
    name = "shop_versions"

    def run(block: str) -> Any:
        text = BLOCKS.get(block, block)
        if block in BLOCKS and block != "before":
            text = BLOCKS["before"].partition("@workflow")[0] + text
        registry.REGISTRY.clear()
        registry.REGISTRY.update(before)
        sys.modules[name] = module = ModuleType(name)
        exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
        return module

    yield run
    sys.modules.pop(name, None)
    registry.REGISTRY.clear()
    registry.REGISTRY.update(before)


async def begun(penstock: Bench, module: Any) -> WorkflowRun:
    order = await penstock.start(module.fulfil(order=7))
    await order.run(until="approved")
    return order


async def ended(order: WorkflowRun) -> None:
    await order.signal("approved")
    await order.run()
    order.assert_completed("receipt 7")


async def test_a_patch_is_for_new_workflows_alone(deploy: Deploy) -> None:
    penstock = Bench()
    old = await begun(penstock, deploy("before"))
    patched = deploy("patched")
    new = await begun(penstock, patched)
    await ended(old)
    await ended(new)
    old.assert_not_ran(patched.check_fraud)
    new.assert_ran(patched.check_fraud, times=1)


async def test_versions_run_side_by_side(deploy: Deploy) -> None:
    penstock = Bench()
    old = await begun(penstock, deploy("before"))
    module = deploy("versions")
    new = await begun(penstock, module)
    new.assert_steps("approved")  # it charges afterwards
    old.assert_steps("charge", "approved")
    await ended(old)
    await ended(new)
    assert (old.view.version, new.view.version) == (1, 2)
    once = await penstock.start(module.fulfil_once(order=7))
    await once.run(until="approved")
    assert once.view.version == 1


async def test_compatible_code_goes_on_with_the_version_before(deploy: Deploy) -> None:
    penstock = Bench()
    old = await begun(penstock, deploy("before"))
    deploy("compatible")
    await ended(old)
    old.assert_steps("charge", "approved", "thank")
    assert old.view.version == 2


async def test_replay_names_what_would_be_blocked(deploy: Deploy) -> None:
    penstock = Bench()
    await begun(penstock, deploy("before"))
    outcomes = {}
    for block in ("before", "patched", "versions", "compatible"):
        deploy(block)
        [one] = (await penstock.client.workflows.replay()).workflows
        outcomes[block] = one.outcome
    assert set(outcomes.values()) == {"fits"}
    registry.REGISTRY.pop(NAME)
    [one] = (await penstock.client.workflows.replay()).workflows
    assert one.outcome == "no-code"


async def test_what_may_change(deploy: Deploy) -> None:
    """The rows of the table that the examples do not show."""
    penstock = Bench()
    before = BLOCKS["before"]
    changes = {
        "ctx.run(charge(order=order))": (
            ("ctx.run(charge(order=order + 1))", "diverges"),
            ("ctx.run(charge(order=order), name='pay')", "diverges"),
            ("ctx.run(check_fraud(order=order))", "diverges"),
        ),
        '    await ctx.wait_signal("approved")\n': (
            ('    await ctx.wait_signal("approved", timeout=60)\n', "fits"),
            ('    await ctx.wait_signal("agreed")\n', "diverges"),
            ("", "diverges"),
        ),
        "order: int) -> str:\n    receipt =": (
            ("order: int, fast: bool = False) -> str:\n    receipt =", "fits"),
            ("order: int, fast: bool) -> str:\n    receipt =", "arguments"),
        ),
        'return f"receipt {order}"': (("return str(order)", "fits"),),
        '@job(queue="cards")\ndef charge': (('@job(queue="x", tries=9)\ndef charge', "fits"),),
        "    return str(receipt)\n": (
            ("    await ctx.sleep(5)\n    return str(receipt)\n", "fits"),
        ),
        'name="shop.fulfil"': (('name="shop.renamed"', "no-code"),),
    }
    await begun(penstock, deploy("before"))
    for old, variants in changes.items():
        assert before.count(old) == 1, old
        for new, outcome in variants:
            deploy(before.replace(old, new))
            [one] = (await penstock.client.workflows.replay()).workflows
            assert one.outcome == outcome, (new, one)


async def test_a_blocked_one_is_fixed_as_the_page_says(deploy: Deploy) -> None:
    penstock = Bench()
    order = await begun(penstock, deploy("before"))
    deploy("versions")
    registry.REGISTRY[NAME].versions.pop(1)  # without the function of version 1
    await order.signal("approved")
    with pytest.raises(AssertionError, match=r"it is blocked: .* it is of version 1"):
        await order.run()
    await penstock.client.workflows.fix(order.id, version=2)
    with pytest.raises(AssertionError, match=r"it is blocked: .*recorded is job 'charge'"):
        await order.run()
    await penstock.client.workflows.fix(order.id, forget=["charge"])
    await order.run()
    order.assert_completed("receipt 7")
    assert order.state is State.COMPLETED


def test_the_commands_of_the_page_exist() -> None:
    lines = re.findall(r"^\$ (penstock [^#\n]*)", PAGE, re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        _, *words = shlex.split(line)
        command: Any = cli
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words.pop(0))
            assert command is not None, line
        options = {option for one in command.params for option in one.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_check_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    block = PAGE.partition("$ penstock workflow check")[2].partition("$ ")[0]
    _, finding, summary = block.splitlines()
    file, line, column, *_ = finding.split(":")
    path = tmp_path / file
    path.parent.mkdir()
    head = "import datetime\n\nfrom penstock.jobs import workflow\n\n\n"
    head += "@workflow()\nasync def other(ctx): ...\n\n\n@workflow()\nasync def fulfil(ctx):\n"
    blank = "\n" * (int(line) - head.count("\n") - 1)
    now = "    begun".ljust(int(column) - 3) + "= datetime.datetime.now()\n"
    path.write_text(head + blank + now)
    checked = CliRunner().invoke(cli, ["workflow", "check", file])
    assert checked.exit_code == 1
    assert checked.output.splitlines() == [finding, summary]

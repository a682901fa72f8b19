"""`make demo`: everything on this machine, load that rises, bursts and falls, two kills, a report.

Exit code 0 only if every job reached its end exactly once, the promises held, and every decision of
the whole log is recomputed equal.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.demonstration import load, report, screen
from examples.demonstration.play import Play, StageFailed
from examples.demonstration.stage import ROOT, Stage, prepared
from rich.console import Console

from penstock.bus.nats import connect
from penstock.bus.protocol import BusError
from penstock.runtime.broker import BrokerMissing
from penstock.runtime.children import ChildFailed

PICTURE, LOGS = ROOT / "demo-report.svg", ROOT / "demo-report.log"
FAILED, INTERRUPTED = 1, 130
PLAIN_WIDTH = 110


def main() -> int:
    options = _options()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    LOGS.unlink(missing_ok=True)
    try:
        with prepared() as stage:
            return asyncio.run(_run(stage, console, options.seed))
    except (asyncio.CancelledError, KeyboardInterrupt):
        console.print("interrupted; everything has ended")
        return INTERRUPTED
    except (BrokerMissing, ChildFailed, BusError) as error:
        console.print(f"The demo could not go on: {error}", style="bold red")
        return FAILED


async def _run(stage: Stage, console: Console, seed: int) -> int:
    _listen_to_signals(stage)
    shown = _screen(stage, console)
    logs_wanted = True
    try:
        bus = await connect(stage.settings, "penstock-demo")
        try:
            found, scene = await Play(stage, bus, shown, seed).perform()
        finally:
            await bus.close()
        logs_wanted = not found.passed
    except asyncio.CancelledError:
        logs_wanted = False
        raise
    except StageFailed as error:
        console.print(f"The stage did not become ready: {error}; see {LOGS.name}", style="bold red")
        return FAILED
    finally:
        shown.close()
        await stage.end()
        if logs_wanted:
            stage.keep_logs(LOGS)
    from examples.demonstration import picture  # noqa: PLC0415 - seconds of imports, needed last

    picture.save(scene, PICTURE)
    report.show(found, console)
    console.print(
        f"\npicture in {PICTURE.name}" + ("" if found.passed else f", logs in {LOGS.name}")
    )
    return 0 if found.passed else FAILED


def _screen(stage: Stage, console: Console) -> screen.Screen:
    if console.is_terminal:
        return screen.LiveTable(console, load.SECONDS, stage.processes)
    return screen.Words(console)


def _listen_to_signals(stage: Stage) -> None:
    """The first Ctrl-C ends in order, the second does not wait for busy workers."""
    whole = asyncio.current_task()

    def asked() -> None:
        if whole is None or whole.cancelling():
            stage.hurry.set()
        else:
            whole.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, asked)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the load; the same load each time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

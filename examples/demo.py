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
from examples.demonstration.installation import ROOT, Installation, prepared
from examples.demonstration.run import Demo, NotReady
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
        with prepared() as installation:
            return asyncio.run(_run(installation, console, options.seed))
    except (asyncio.CancelledError, KeyboardInterrupt):
        console.print("interrupted; everything has ended")
        return INTERRUPTED
    except (BrokerMissing, ChildFailed, BusError) as error:
        console.print(f"The demo failed: {error}", style="bold red")
        return FAILED


async def _run(installation: Installation, console: Console, seed: int) -> int:
    _listen_to_signals(installation)
    shown = _screen(installation, console)
    logs_wanted = True
    try:
        bus = await connect(installation.settings, "penstock-demo")
        try:
            result, plotted = await Demo(installation, bus, shown, seed).run()
        finally:
            await bus.close()
        logs_wanted = not result.passed
    except asyncio.CancelledError:
        logs_wanted = False
        raise
    except NotReady as error:
        console.print(f"The demo did not start: {error}; see {LOGS.name}", style="bold red")
        return FAILED
    finally:
        shown.close()
        await installation.end()
        if logs_wanted:
            installation.keep_logs(LOGS)
    from examples.demonstration import picture  # noqa: PLC0415 - seconds of imports, needed last

    picture.save(plotted, PICTURE)
    report.show(result, console)
    console.print(
        f"\npicture in {PICTURE.name}" + ("" if result.passed else f", logs in {LOGS.name}")
    )
    return 0 if result.passed else FAILED


def _screen(installation: Installation, console: Console) -> screen.Screen:
    if console.is_terminal:
        return screen.LiveTable(console, load.SECONDS, installation.processes)
    return screen.Words(console)


def _listen_to_signals(installation: Installation) -> None:
    """The first Ctrl-C ends everything in order, the second does not wait for busy workers."""
    demo = asyncio.current_task()

    def end() -> None:
        if demo is None or demo.cancelling():
            installation.hurry.set()
        else:
            demo.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the load; the same load each time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

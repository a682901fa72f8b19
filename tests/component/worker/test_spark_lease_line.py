"""The line between a worker and its host's Spark supervisor, without Spark."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from penstock.executor.spark.supervisor import listener
from penstock.spark.supervisor_protocol import SOCKET, Answer, line
from penstock.worker.spark.lease import SupervisorLine

REMOTE = "sc://127.0.0.1:1"


@pytest.mark.parametrize("length", [0, 107, 108, 200, 1000], ids=lambda length: f"{length} bytes")
def test_a_worker_finds_its_supervisor_however_long_the_run_folder_s_path_is(
    tmp_path: Path, length: int
) -> None:
    folder = tmp_path
    while (missing := length - len(str(folder / SOCKET))) > 1:
        folder /= "d" * min(missing - 1, 100)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SOCKET
    with listener(path) as listening:
        listening.setblocking(True)
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(line(Answer(remote=REMOTE)))

        supervisor = threading.Thread(target=answer, daemon=True)
        supervisor.start()
        supervisor_line = SupervisorLine(path)
        assert supervisor_line.ask() == REMOTE
        supervisor_line.close()
        supervisor.join()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

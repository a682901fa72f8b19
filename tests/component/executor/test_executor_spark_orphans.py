"""A dead worker's session on a Spark elsewhere: ended in its name, by Spark's own protocol."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.waiting import eventually

from penstock.config.spark import Spark as SparkSettings
from penstock.events.worker import WorkerReport
from penstock.executor.spark.orphans import SparkOrphans
from penstock.executor.spark.release import release
from penstock.spark.sessions import address

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    from pyspark.sql.connect.proto import base_pb2 as pb
    from pyspark.sql.connect.proto import base_pb2_grpc as pb_grpc

SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"


class Spark(pb_grpc.SparkConnectServiceServicer):  # type: ignore[misc]
    """Hears what is asked of it; Spark's own classes read it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, dict[str, str]]] = []

    def Interrupt(self, request: Any, context: Any) -> Any:
        self.asked.append(("Interrupt", request, dict(context.invocation_metadata())))
        return pb.InterruptResponse()

    def ReleaseSession(self, request: Any, context: Any) -> Any:
        self.asked.append(("ReleaseSession", request, dict(context.invocation_metadata())))
        return pb.ReleaseSessionResponse()


@pytest.fixture
def spark() -> Iterator[tuple[Spark, str]]:
    server = grpc.server(ThreadPoolExecutor(2))
    heard = Spark()
    pb_grpc.add_SparkConnectServiceServicer_to_server(heard, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield heard, f"sc://localhost:{port}/;token=secret;user_id=penstock"
    server.stop(0)


def report(**fields: Any) -> WorkerReport:
    known = {"host": "h", "pool": "p", "pid": 1, "state": "busy", "number": 1}
    return WorkerReport(worker="w", at=0.0, started_at=0.0, **{**known, **fields})


def test_its_work_is_interrupted_and_its_session_released(spark: tuple[Spark, str]) -> None:
    heard, remote = spark
    assert release(remote, SESSION)
    assert [verb for verb, _, _ in heard.asked] == ["Interrupt", "ReleaseSession"]
    for _, request, metadata in heard.asked:
        assert (request.session_id, request.user_context.user_id) == (SESSION, "penstock")
        assert metadata["authorization"] == "Bearer secret"
    assert heard.asked[0][1].interrupt_type == pb.InterruptRequest.INTERRUPT_TYPE_ALL


def test_a_server_that_is_gone_is_no_error() -> None:
    assert not release("sc://localhost:1/;token=x", SESSION)


async def test_only_of_workers_that_died(spark: tuple[Spark, str]) -> None:
    heard, remote = spark
    orphans = SparkOrphans(remote)
    orphans.learn(report())
    orphans.ended("w", -9)  # never had a session
    orphans.learn(report(spark_session=SESSION))
    orphans.learn(report())  # between sessions
    orphans.ended("w", 0)
    orphans.learn(report(spark_session=SESSION))
    orphans.ended("w", -9)
    orphans.ended("w", -9)
    await eventually(lambda: len(heard.asked) == 2)
    assert {request.session_id for _, request, _ in heard.asked} == {SESSION}


async def test_the_hosts_own_spark_is_its_keepers() -> None:
    orphans = SparkOrphans("")
    orphans.learn(report(spark_session=SESSION))
    orphans.ended("w", -9)
    assert not orphans._tasks


def test_the_token_of_a_file_goes_along(spark: tuple[Spark, str], tmp_path: Path) -> None:
    heard, remote = spark
    (tmp_path / "token").write_text("to+ken")
    place = remote.partition("/;")[0]
    assert release(address(SparkSettings(remote=place, token_file=f"{tmp_path}/token")), SESSION)
    assert {told["authorization"] for _, _, told in heard.asked} == {"Bearer to+ken"}

"""How kind `kafka` reaches brokers: TLS, SASL, servers that are none, options that do not fit."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kafka_cluster import KafkaCluster, kafka_cluster

from penstock.config.load import ConfigError
from penstock.config.sources import SourceTable
from penstock.metrics.sources import SourceAway, SourceLook
from penstock.metrics.sources.kafka.connection import KafkaConnection, Security
from penstock.metrics.sources.registry import check, open_source

pytest.importorskip("aiokafka")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster() as cluster:
        yield cluster


def make_certificate(certificate: Path, key: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("needs openssl on PATH")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65_536):
        writer.write(part)
    writer.close()


async def authenticating(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that knows one user, and only to authenticate."""
    with suppress(asyncio.IncompleteReadError):
        while True:
            [size] = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            api, _, number = struct.unpack_from(">hhi", request)
            if api == 18:  # ApiVersions
                body = struct.pack(">hi6h", 0, 2, 17, 1, 1, 36, 0, 0)
            elif api == 17:  # SaslHandshake
                code = 0 if request.endswith(b"\x05PLAIN") else 33
                body = struct.pack(">hih5s", code, 1, 5, b"PLAIN")
            else:  # SaslAuthenticate
                code = 0 if request.endswith(b"shop\0shop\0right") else 58
                body = struct.pack(">hhi", code, -1, 0)
            writer.write(struct.pack(">ii", 4 + len(body), number) + body)
    writer.close()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "more than 4000000 bytes"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x63", "not of Kafka"),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x63\x00\x00\x00\x00\x00\x00", "another request"),
        (b"\x00\x00\x00\xff", "closed the connection"),
        (b"\xff\xff\xff\xff", "not of Kafka"),
    ],
)
async def test_another_server_is_named_as_one(answer, text) -> None:
    async def answering(reader, writer) -> None:
        await reader.read(4)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(answering, "127.0.0.1", 0)
    url = f"kafka://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    source = open_source("shop", SourceTable(kind="kafka", url=url, options={"group": "workers"}))
    async with server:
        with pytest.raises(SourceAway, match=text):
            await source.look(["mail"])
        await source.close()


async def test_a_broker_that_is_down_is_passed_over_at_the_start(cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        down = free.getsockname()[1]
    table = SourceTable(
        kind="kafka", url=f"kafka://127.0.0.1:{down}",
        options={"group": "workers", "brokers": [f"127.0.0.1:{cluster.port}"]},
    )  # fmt: skip
    source = open_source("shop", table)
    [seen] = (await source.look(["mail"])).values()
    assert isinstance(seen, SourceLook)
    assert seen.waiting == 0
    await source.close()


async def test_a_broker_is_talked_to_by_tls(cluster, tmp_path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    async def forwarding(reader, writer) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
        await asyncio.gather(copy(reader, to_broker), copy(from_broker, writer))

    server = await asyncio.start_server(forwarding, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    async with server:
        trusting = ssl.create_default_context(cafile=certificate)
        connection = await KafkaConnection.open("127.0.0.1", port, Security(tls=trusting))
        await connection.close()
        with pytest.raises(SourceAway, match="certificate verify failed"):
            await KafkaConnection.open(
                "127.0.0.1", port, Security(tls=ssl.create_default_context())
            )


async def test_a_user_is_authenticated_and_a_refusal_names_no_password() -> None:
    server = await asyncio.start_server(authenticating, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def security(mechanism: str, password: str) -> Security:
        return Security(mechanism=mechanism, user="shop", password=password)

    async with server:
        right = await KafkaConnection.open("127.0.0.1", port, security("PLAIN", "right"))
        await right.close()
        with pytest.raises(SourceAway, match="refuses user 'shop'") as caught:
            await KafkaConnection.open("127.0.0.1", port, security("PLAIN", "wr0ng"))
        assert "wr0ng" not in str(caught.value)
        with pytest.raises(SourceAway, match="does not take SASL mechanism SCRAM-SHA-256"):
            await KafkaConnection.open("127.0.0.1", port, security("SCRAM-SHA-256", "right"))


@pytest.mark.parametrize(
    ("options", "user", "text"),
    [
        ({}, "", "group"),
        ({"group": "g", "auto_offset_reset": "none"}, "", "auto_offset_reset"),
        ({"group": "g", "ca_file": "ca.pem"}, "", "need security_protocol SSL"),
        ({"group": "g", "brokers": [":9092"]}, "", "expected HOST:PORT"),
        ({"group": "g", "brokers": ["cache:port"]}, "", "brokers"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, user, text) -> None:
    table = SourceTable(kind="kafka", url=f"kafka://{user}cache:9092", options=options)
    with pytest.raises(ConfigError, match=text):
        check({"shop": table})


@pytest.mark.parametrize(
    ("options", "user", "text"),
    [
        ({"security_protocol": "SASL_SSL"}, "", "needs a user in url and secret_file"),
        ({}, "shop@", "takes no user"),
        ({"security_protocol": "SSL", "ca_file": "/no/such.pem"}, "", "ca_file"),
    ],
)
def test_a_user_or_a_file_that_is_missing_is_a_fault(options, user, text) -> None:
    options = {"group": "workers", **options}
    table = SourceTable(kind="kafka", url=f"kafka://{user}cache:9092", options=options)
    with pytest.raises(ConfigError, match=text):
        open_source("shop", table)

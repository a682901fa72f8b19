"""Encrypted jobs on a real broker: a worker that lacks the key, and what operators are shown."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import msgspec
import pytest
from tests.integration.counted_jobs import pay
from tests.integration.crew import Crew
from tests.integration.shell import Shell
from tests.waiting import eventually

from penstock.config.settings import Encryption
from penstock.jobs import Client
from penstock.jobs.lifecycle import State
from penstock.jobs.queues import queue_messages

MODULES = {"modules": ["tests.integration.sample_jobs", "tests.integration.counted_jobs"]}
KNOWN = pytest.mark.parametrize("crew", [{"jobs": MODULES}], indirect=True)
SECRET = "4111-1111"


def with_keys(crew: Crew, folder: Path, key_id: str = "first") -> Client:
    """From now on workers are hired with this key; a client that has it, too."""
    path = folder / f"keys-{key_id}"
    path.touch(mode=0o600)
    path.write_text(f"{key_id} {base64.b64encode(key_id.ljust(32).encode()).decode()}\n")
    encryption = Encryption(key_file=str(path))
    crew.settings = msgspec.structs.replace(crew.settings, encryption=encryption)
    return Client.over(crew.bus, crew.settings)


@KNOWN
async def test_a_worker_without_the_key_lets_the_job_wait(crew: Crew, tmp_path: Path) -> None:
    client = with_keys(crew, tmp_path)
    job_id = await client.dispatch(pay(diary=crew.diary.path, name="a", card=SECRET))
    with_keys(crew, tmp_path, "other")
    crew.hire()
    subject = crew.subjects.schedule("work", job_id)
    waits = await eventually(
        lambda: crew.bus.last(crew.subjects.jobs_stream, subject), 15, "the job waiting"
    )
    assert waits.headers[queue_messages.JOB] == job_id
    await crew.emptied()
    assert await crew.story(job_id) == ["JobDispatched"]
    await client.cancel(job_id)
    assert (await client.job(job_id)).state is State.CANCELLED


@KNOWN
async def test_an_operator_sees_neither_sealed_nor_masked_values(
    crew: Crew, tmp_path: Path
) -> None:
    client = with_keys(crew, tmp_path)
    crew.hire()
    job_id = await client.dispatch(pay(diary=crew.diary.path, name="a", card=SECRET))
    assert (await client.wait(job_id, 20)).result == {"card": SECRET}
    nats, prefix = crew.settings.nats.url, crew.settings.prefix
    (tmp_path / "penstock.toml").write_text(f'prefix = "{prefix}"\n[nats]\nurl = "{nats}"\n')
    shell = Shell(tmp_path)
    shown = await asyncio.to_thread(shell.json, "job", "show", job_id)
    assert shown["arguments"] == shown["result"] == "(encrypted with key first)"
    tail = ("events", "tail", "--noun", "job", "--key", job_id, "--no-follow", "--since", "1h")
    told = await asyncio.to_thread(shell.call, "--json", *tail)
    assert "(encrypted with key first)" in told.stdout
    assert SECRET not in told.stdout
    assert base64.b64encode(SECRET.encode()).decode() not in told.stdout

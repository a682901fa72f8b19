"""The example of an unmodified Celery app and its tutorial, done as written, with Celery itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.celery_programs import celery_programs
from tests.e2e.pages import Reader, blocks
from tests.e2e.test_tutorials import CELERY
from tests.rabbitmq_server import RabbitServer, rabbitmq_server

from penstock.cli.config_remarks import judge
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.runtime.paths import free_port

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "celery"
REDIS_PORT = "6379"
_BROKER = '"redis://127.0.0.1:6379/0", backend="redis://127.0.0.1:6379/1"'
_SOURCE = 'kind = "celery"\nurl = "redis://127.0.0.1:6379/0"'


@pytest.fixture
def programs() -> Path:
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server on PATH")
    return celery_programs()


def test_the_example_handles_its_tasks(programs: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), "--celery-env", str(programs.parent)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [f"invoice {number} sent" in done.stdout for number in range(20)] == [True] * 20
    assert "95 % within 5 s" in done.stdout


def test_the_tutorial_works_as_written(programs: Path, tmp_path: Path) -> None:
    page = CELERY.read_text().replace(REDIS_PORT, str(free_port()))
    _follow(page, programs, tmp_path)


def test_the_tutorial_works_with_rabbitmq(
    programs: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq")) as server:
        _follow(_with_rabbitmq(CELERY.read_text(), server), programs, tmp_path)


def test_the_example_is_what_the_tutorial_shows() -> None:
    shown = {block.text for block in blocks(CELERY.read_text())}
    for name in ("tasks.py", "send.py", "penstock.toml"):
        assert (EXAMPLE / name).read_text() in shown, name


def test_the_table_of_rabbitmq_in_the_tutorial_is_in_order(tmp_path: Path) -> None:
    [table] = [block.text for block in blocks(CELERY.read_text()) if '"rabbitmq"' in block.text]
    secret = tmp_path / "rabbitmq-password"
    secret.write_text("secret")
    secret.chmod(0o600)
    pool = tomllib.loads((EXAMPLE / "penstock.toml").read_text())["pools"]
    source = tomllib.loads(table.replace("rabbitmq-password", str(secret)))["sources"]
    settings = check({"sources": source, "pools": pool})
    remarks = judge(settings, pools(settings), no_import=True)
    assert [remark for remark in remarks if remark.rule in ("bad-source", "source-secret")] == []


def _follow(page: str, programs: Path, folder: Path) -> None:
    (folder / "celery-env").symlink_to(programs.parent, target_is_directory=True)
    with ExitStack() as stack:
        reader = Reader(folder, stack)
        for block in blocks(page):
            reader.follow(block)


def _with_rabbitmq(page: str, server: RabbitServer) -> str:
    broker = f'"{server.url.replace("://", "://guest:guest@")}/", backend="rpc://"'
    source = f'kind = "rabbitmq"\nurl = "{server.management_url}"'
    assert page.count(_BROKER) == page.count(_SOURCE) == 1
    replaced = page.replace(_BROKER, broker).replace(_SOURCE, source)
    redis = "redis-server --port 6379 --bind 127.0.0.1 --save '' &"
    assert redis in replaced
    return replaced.replace(redis, "true")

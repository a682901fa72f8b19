"""Class archives: made once, by one, and not used when broken."""

from __future__ import annotations

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.class_archive import Archive, archive
from penstock.spark.java import Java

WHOLE = b"classes" * 1000


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(home, 17, has_vector=True)


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"jar")
    return [jar]


def writes(content: bytes = WHOLE, calls: list[str] | None = None):
    def train(flags: tuple[str, ...]) -> None:
        if calls is not None:
            calls.append(flags[0])
        Path(flags[0].partition("=")[2]).write_bytes(content)

    return train


def made(tmp_path: Path, java: Java, jars: list[Path]) -> Archive:
    found = archive(java, "daemon", jars, tmp_path / "cache")
    assert found.build(writes())
    return found


def test_it_is_made_once_and_then_used(tmp_path: Path, java: Java, jars: list[Path]) -> None:
    found, calls = archive(java, "daemon", jars, tmp_path / "cache"), list[str]()
    assert found.flags == ()
    assert found.build(writes(calls=calls))
    assert found.build(writes(calls=calls))
    assert len(calls) == 1
    assert f"-XX:SharedArchiveFile={found.file}" in found.flags
    assert not list((tmp_path / "cache").glob("*.new"))


def test_a_newer_java_has_its_own_kind(tmp_path: Path, java: Java, jars: list[Path]) -> None:
    newer, calls = replace(java, version=25), list[str]()
    found = archive(newer, "daemon", jars, tmp_path / "cache")
    assert found.build(writes(calls=calls))
    assert calls[0].startswith("-XX:AOTCacheOutput=")
    assert f"-XX:AOTCache={found.file}" in found.flags


def test_another_java_or_jar_has_another(tmp_path: Path, java: Java, jars: list[Path]) -> None:
    found = made(tmp_path, java, jars)
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    assert archive(java, "daemon", jars, tmp_path / "cache").file != found.file
    assert archive(java, "connect", jars, tmp_path / "cache").flags == ()
    jars[0].write_bytes(b"newer")
    assert archive(java, "daemon", jars, tmp_path / "cache").flags == ()


@pytest.mark.parametrize("damage", [WHOLE[:-1], WHOLE[:-1] + b"?", b""])
def test_a_broken_one_is_not_used_and_made_anew(
    tmp_path: Path, java: Java, jars: list[Path], damage: bytes
) -> None:
    found = made(tmp_path, java, jars)
    assert found.flags
    assert found.file
    found.file.write_bytes(damage)
    assert found.flags == ()
    assert found.build(writes())
    assert found.flags


def test_who_finds_a_builder_at_work_does_without(
    tmp_path: Path, java: Java, jars: list[Path]
) -> None:
    found = archive(java, "daemon", jars, tmp_path / "cache")
    assert found.file
    with found.file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not found.build(writes())
    assert found.build(writes())


def test_a_training_that_fails_or_writes_nothing_leaves_nothing(
    tmp_path: Path, java: Java, jars: list[Path]
) -> None:
    found = archive(java, "daemon", jars, tmp_path / "cache")

    def fails(flags: tuple[str, ...]) -> None:
        writes()(flags)
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        found.build(fails)
    assert not found.build(lambda _: None)
    assert found.flags == ()
    assert not list((tmp_path / "cache").glob("*.new"))


def test_without_a_place_there_is_none(
    tmp_path: Path, java: Java, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "penstock"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = archive(java, "daemon", jars)
    assert found.flags == ()
    assert not found.build(writes())

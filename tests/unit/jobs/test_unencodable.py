"""What is said of a result that has no encoding: which function, which type, and where."""

from __future__ import annotations

import pytest

from penstock.jobs import job
from penstock.jobs.payloads.unencodable import unencodable


class Cursor: ...


@job(queue="q", name="unencodable.read")
def read() -> object: ...


@job(queue="q", name="unencodable.read_secret", encrypted=True)
def read_secret() -> object: ...


def test_function_type_and_place_are_named() -> None:
    with pytest.raises(TypeError) as raised:
        read.encode_result({"rows": [1, {"by": Cursor()}]})
    text = str(raised.value)
    assert text.startswith("unencodable.read (")
    assert "test_unencodable.py:" in text
    assert "returned a Cursor at ['rows'][1]['by'], which cannot be stored" in text


def test_of_a_secret_result_only_its_type_is_named() -> None:
    with pytest.raises(TypeError) as raised:
        read_secret.encode_result({"card 4711": Cursor()})
    assert "returned a dict, which cannot be stored; " in str(raised.value)
    assert "4711" not in str(raised.value)


def test_values_without_parts_and_deep_ones() -> None:
    assert unencodable(2**70).startswith("a int, which cannot be stored (")
    endless: list[object] = []
    endless.append(endless)
    assert "which cannot be stored" in unencodable(endless)

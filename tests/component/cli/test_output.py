"""Tables for people, JSON for programs, nothing for the terminal to obey."""

from __future__ import annotations

import json
import logging

import msgspec

from penstock.cli import logs
from penstock.cli.output import Column, say_rows
from penstock.cli.session import Session


class Row(msgspec.Struct):
    name: str
    size: int


COLUMNS = (Column("name", lambda row: row.name), Column("size", lambda row: str(row.size), True))


def test_json_is_a_list_of_objects(capsys) -> None:
    say_rows(Session(as_json=True), [Row("a", 1)], COLUMNS, "nothing")
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "size": 1}]


def test_json_of_nothing_is_an_empty_list(capsys) -> None:
    say_rows(Session(as_json=True), [], COLUMNS, "nothing")
    assert json.loads(capsys.readouterr().out) == []


def test_nothing_is_said_beside_the_answer(capsys) -> None:
    say_rows(Session(), [], COLUMNS, "no row is there")
    assert capsys.readouterr() == ("", "no row is there\n")


def test_a_table_is_never_cut_where_a_program_reads_it(capsys) -> None:
    say_rows(Session(), [Row("long" * 100, 1)], COLUMNS, "nothing")
    assert "long" * 100 in capsys.readouterr().out


def test_neither_markup_nor_control_characters_get_through(capsys) -> None:
    say_rows(Session(), [Row("[red]\x1b[31mboo", 1)], COLUMNS, "nothing")
    shown = capsys.readouterr().out
    assert "[red]" in shown
    assert "\x1b" not in shown


def test_log_lines() -> None:
    record = logging.LogRecord("penstock.x", logging.WARNING, "", 0, "a %s", ("b\x1b[0m",), None)
    assert logs.PlainLines().format(record).endswith("WARNING penstock.x  a b�[0m")
    told = json.loads(logs.JsonLines().format(record))
    assert (told["level"], told["logger"], told["text"]) == ("warning", "penstock.x", "a b\x1b[0m")

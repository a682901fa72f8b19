"""Tables for people, JSON for programs, nothing for the terminal to obey."""

from __future__ import annotations

import json
import logging
import sys

import msgspec
import pytest

from penstock.cli.output import Column, write_rows
from penstock.cli.session import Session
from penstock.telemetry import lines
from penstock.telemetry.job_lines import RunningJob


class Row(msgspec.Struct):
    name: str
    size: int


COLUMNS = (Column("name", lambda row: row.name), Column("size", lambda row: str(row.size), True))


def test_json_is_a_list_of_objects(capsys) -> None:
    write_rows(Session(as_json=True), [Row("a", 1)], COLUMNS, "nothing")
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "size": 1}]


def test_json_of_nothing_is_an_empty_list(capsys) -> None:
    write_rows(Session(as_json=True), [], COLUMNS, "nothing")
    assert json.loads(capsys.readouterr().out) == []


def test_nothing_is_said_beside_the_answer(capsys) -> None:
    write_rows(Session(), [], COLUMNS, "no row is there")
    assert capsys.readouterr() == ("", "no row is there\n")


def test_a_table_is_never_cut_where_a_program_reads_it(capsys) -> None:
    write_rows(Session(), [Row("long" * 100, 1)], COLUMNS, "nothing")
    assert "long" * 100 in capsys.readouterr().out


def test_lines_of_a_table_in_a_pipe_are_as_long_as_their_own_text(capsys) -> None:
    columns = (Column("id", lambda row: row[0]), Column("error", lambda row: row[1]))
    write_rows(Session(), [("a", "x" * 300), ("b", "short")], columns, "none")
    first, titles, rule, long, short, *_ = capsys.readouterr().out.split("\n")
    assert (first, len(long) > 300) == ("", True)
    assert len(short) < 20
    assert len(rule) == len(titles) < 20


def test_neither_markup_nor_control_characters_get_through(capsys) -> None:
    write_rows(Session(), [Row("[red]\x1b[31mboo", 1)], COLUMNS, "nothing")
    shown = capsys.readouterr().out
    assert "[red]" in shown
    assert "\x1b" not in shown


STEERING = "\x1b\x9b\x85\r\x7f\u202e\u2066\u2028\u200b\U000e0041"


@pytest.mark.parametrize("char", STEERING, ids=ascii)
def test_what_steers_a_terminal_is_replaced_in_text_and_escaped_in_json(capsys, char: str) -> None:
    name = f"ä{char}日"
    write_rows(Session(as_json=True), [Row(name, 1)], COLUMNS, "nothing")
    in_json = capsys.readouterr().out
    assert char not in in_json
    assert json.loads(in_json) == [{"name": name, "size": 1}]
    assert "ä" in in_json
    assert lines.printable(name) == "ä�日"


def test_joiners_of_words_and_emoji_stay() -> None:
    assert lines.printable("👩\u200d💻 a\u200cb") == "👩\u200d💻 a\u200cb"


def test_no_message_and_no_error_begins_a_log_line_of_its_own() -> None:
    forged = "x\n12:00:00.000 INFO    penstock.decider  forged\r\x1b[2J"
    try:
        raise ValueError(forged)
    except ValueError:
        broken = sys.exc_info()
    record = logging.LogRecord("penstock.x", logging.ERROR, "", 0, "job %s", (forged,), broken)
    shown = lines.PlainLines().format(record)
    assert "\x1b" not in shown
    assert "\r" not in shown
    first, *others = shown.split("\n")
    assert first.endswith("ERROR   penstock.x  job x")
    assert all(other.startswith("  | ") for other in others)
    assert len(lines.JsonLines().format(record).splitlines()) == 1


def test_a_line_of_a_jobs_own_logger_names_the_job() -> None:
    record = logging.LogRecord("shop.send", logging.INFO, "", 0, "sent", (), None)
    vars(record).update(RunningJob("01a2", 2, "shop.send", "mails-1", "").extra())
    shown = lines.PlainLines().format(record)
    assert shown.endswith("shop.send  [job 01a2 attempt 2 function shop.send worker mails-1] sent")
    told = json.loads(lines.JsonLines().format(record))
    assert (told["job_id"], told["attempt"], told["worker"]) == ("01a2", 2, "mails-1")


def test_log_lines() -> None:
    record = logging.LogRecord("penstock.x", logging.WARNING, "", 0, "a %s", ("b\x1b[0m",), None)
    assert lines.PlainLines().format(record).endswith("WARNING penstock.x  a b�[0m")
    told = json.loads(lines.JsonLines().format(record))
    assert (told["level"], told["logger"], told["text"]) == ("warning", "penstock.x", "a b\x1b[0m")

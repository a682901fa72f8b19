"""Secrets are hidden by parts of names, wherever programs put names; what only counts is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.load import check, dump
from penstock.config.masking import MASK, masked
from penstock.config.secret_names import hides, is_secret, spelled, words_of

HIDDEN = "s3cr3t-Value.42"
STEMS = [
    "password", "passwords", "passwd", "passphrase", "pwd", "secret", "token", "credentials",
    "authorization", "cookie", "jwt", "api key", "access key", "private key", "secret key",
    "client secret", "account key", "pass", "auth",
]  # fmt: skip
FACTS = ["count", "reset", "expires", "length", "file", "path", "name", "type", "policy", "url"]
SPELLINGS: list[Callable[[list[str]], str]] = [
    "_".join,
    "-".join,
    ".".join,
    " ".join,
    lambda words: "_".join(words).upper(),
    lambda words: words[0] + "".join(word.capitalize() for word in words[1:]),
    lambda words: "".join(word.capitalize() for word in words),
    lambda words: "_".join(words) + "2",
    lambda words: "\u200b".join("_".join(words)),
]
PREFIXES = st.lists(st.sampled_from(["db", "my", "user", "smtp", "prod", "x"]), max_size=3)


@st.composite
def secret_names(draw: st.DrawFn) -> str:
    words = [*draw(PREFIXES), *draw(st.sampled_from(STEMS)).split()]
    return draw(st.sampled_from(SPELLINGS))(words)


@st.composite
def facts(draw: st.DrawFn) -> str:
    words = [*draw(PREFIXES), *draw(st.sampled_from(STEMS)).split(), draw(st.sampled_from(FACTS))]
    return draw(st.sampled_from(SPELLINGS[:-2]))(words)


SHAPES: list[Callable[[str, str], Any]] = [
    lambda name, value: {name: value},
    lambda name, value: {name: [value, {"deep": value}]},
    lambda name, value: {name.encode(): value},
    lambda name, value: [[name, value]],
    lambda name, value: {"headers": [("Accept", "text"), (name, value)]},
    lambda name, value: {"environment": [{"name": name, "value": value, "kind": "x"}]},
    lambda name, value: {"Key": name, "Content": {"inner": value}},
    lambda name, value: json.dumps({name: value}),
    lambda name, value: json.dumps({"body": json.dumps([{name: value}])}),
    lambda name, value: json.dumps({name: value}).encode(),
    lambda name, value: {"json": " " + json.dumps({"a": [{"name": name, "value": value}]})},
]
ASSIGNED: list[Callable[[str, str], Any]] = [
    lambda name, value: f"host=h {name}={value} user=u",
    lambda name, value: f"driver://h/db?user=u&{name}={value}&ssl=1",
    lambda name, value: f"AccountName=a;{name}='{value} and more';End=1",
    lambda name, value: f"{{'{name}': '{value}', 'rows': 3}}",
    lambda name, value: json.dumps({name: value})[:-2],
    lambda name, value: json.dumps(json.dumps({name: value}))[:-2],
    lambda name, value: ["run", f"--{name}", value, "fast"],
    lambda name, value: ["run", f"--{name}={value}"],
    lambda name, value: f"{name}: Bearer {value}",
    lambda name, value: f"GET https://host/rows?{name}={value} 200",
    lambda name, value: f"ValueError: {name}={value}",
    lambda name, value: f"mode=fast,{name}={value}",
]


def wrapped() -> st.SearchStrategy[Callable[[Any], Any]]:
    return st.sampled_from(
        [lambda value: value, lambda value: [1, value], lambda value: {"rows": (value,)}]
    )


@given(secret_names(), st.sampled_from(SHAPES), wrapped())
def test_a_secret_is_hidden_however_it_is_named_and_nested(name, shape, wrap) -> None:
    assert HIDDEN not in repr(masked(wrap(shape(name, HIDDEN))))


@given(secret_names().filter(str.isascii), st.sampled_from(ASSIGNED), wrapped())
def test_a_secret_is_hidden_in_text(name: str, shape, wrap) -> None:
    assert HIDDEN not in repr(masked(wrap(shape(name.replace(" ", "_"), HIDDEN))))


@given(facts(), st.one_of(st.integers(), st.text("abc", max_size=9), st.booleans()))
def test_a_fact_about_a_secret_is_shown(name: str, value: Any) -> None:
    assert masked({name: value, "rows": [[name, value]]}) == {name: value, "rows": [[name, value]]}


HARMLESS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text("abcxyz, .!/\n")),
    lambda below: st.one_of(
        st.lists(below), st.dictionaries(st.text("abcxyz_", max_size=6), below)
    ),
)


@given(HARMLESS)
def test_what_has_no_secret_is_shown_as_it_is(value: Any) -> None:
    assert masked(value) == value


ANY = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(), st.binary(), secret_names(),
        secret_names().map(lambda name: f"{name}={HIDDEN}"),
    ),
    lambda below: st.one_of(
        st.lists(below), st.dictionaries(st.one_of(st.text(), secret_names()), below)
    ),
)  # fmt: skip


@given(ANY)
def test_masking_takes_any_value_and_changes_nothing_the_second_time(value: Any) -> None:
    once = masked(value)
    assert masked(once) == once


@pytest.mark.parametrize(
    "name",
    ["token_count", "passwords_reset", "secret_name", "password_file", "tokenizer", "secretary",
     "public_key", "primary_key", "key", "compass", "author", "authenticate", "monkey_key"],
)  # fmt: skip
def test_names_that_only_resemble_a_secrets_name(name: str) -> None:
    assert not is_secret(name)


def test_what_cannot_be_a_secret_is_shown_under_its_name() -> None:
    value = {"max_tokens": 512, "has_password": True, "token": None, "password": "", "cookies": 2}
    assert masked(value) == value
    assert masked({"pin_token": 1234}) == {"pin_token": MASK}


def test_declared_names_hide_everything_in_any_spelling() -> None:
    value = {"cardNumber": False, "CARD-NUMBER": 1, "note": "card_number=4111", "card": "x"}
    shown = masked(value, ["card_number"])
    assert shown == {
        "cardNumber": MASK,
        "CARD-NUMBER": MASK,
        "note": "card_number=***",
        "card": "x",
    }
    assert hides("Karten-Nr", 0, spelled(["kartenNr"]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://u:p@ss@h:5432/db", "postgres://***@h:5432/db"),
        ("postgres://u:p/ss@h/db", "postgres://***@h/db"),
        ("nats://a:4222,nats://u:p@b:4222", "nats://a:4222,nats://***@b:4222"),
        ("http://host:8080/users/a@b.org", "http://host:8080/users/a@b.org"),
        ("write to a@b.org: see https://c.org/@d", "write to a@b.org: see https://c.org/@d"),
        ("Cookie: a=1; b=2\nHost: h", "Cookie: ***\nHost: h"),
        ("https://api/x?api_key=s", "https://api/x?api_key=***"),
        ("url=https://h/?token=s&x=1", "url=https://h/?token=***&x=1"),
        ("ValueError: password=s", "ValueError: password=***"),
        ("failed:password=s", "failed:password=***"),
        ("a=b,password=s", "a=b,password=***"),
        ("password=abc=s", "password=***"),
        ("password: a:s", "password: ***"),
        ("sent Bearer abcdefgh.ijkl", "sent Bearer ***"),
        ("sent Authorization Basic S\nmore", "sent Authorization ***\nmore"),
        ("authorization failed for a cookie Basic x", "authorization failed for a cookie Basic x"),
        ('{"password": null, "max_tokens": 5}', '{"password": null, "max_tokens": 5}'),
        ('{"password": "a", "n": 1}', '{"password":"***","n":1}'),
        ("GET https://a.org/?access_token=S 200", "GET https://a.org/?access_token=*** 200"),
        ("https://a.org/#x=1,token=S", "https://a.org/#x=1,token=***"),
        ("Error: token: S", "Error: token: ***"),
        ("text='login with token=S failed'", "text='login with token=*** failed'"),
        ("password=k=v,S", "password=***"),
        ("token: max_tokens=5", "token: ***"),
        ("tokens=5 x=1 10:20:30 a:b", "tokens=5 x=1 10:20:30 a:b"),
    ],
)
def test_addresses_headers_and_json(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text", ["a:" * 200_000, "a=b," * 100_000, "a=" * 200_000 + "?b=" * 1000, "?a" * 200_000,
             "a" * 1_000_000, '"' * 200_000, "://" * 200_000, "token=" * 200_000, "[" * 200_000,
             "password='\"" * 100_000, " " * 1_000_000 + ":", "x:" * 300_000 + "@",
             "a=b,?token=1" * 100_000, "tokens=1?" * 100_000, "authorization" + " " * 500_000,
             "authorization " * 100_000],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_long_texts_take_no_time_that_grows_with_their_square(text: str) -> None:
    assert masked([text])


def test_deep_values_are_cut() -> None:
    value: Any = HIDDEN
    for _ in range(200):
        value = [value]
    assert HIDDEN not in repr(masked(value))


@given(st.text())
def test_each_name_has_words(name: str) -> None:
    assert words_of(name)
    assert not re.search(r"[A-Z_]", "".join(words_of(name)))


def test_settings_of_spark_are_hidden_by_parts_of_their_names() -> None:
    conf = {
        "spark.hadoop.fs.s3a.access.key": "hidden",
        "spark.hadoop.fs.s3a.secret.key": "hidden",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "hidden",
        "spark.ssl.keyStorePassword": "hidden",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=hidden -Xmx1g",
        "spark.sql.shuffle.partitions": "8",
    }
    shown = dump(check({"spark": {"conf": conf}}))
    assert "hidden" not in shown
    assert '"spark.sql.shuffle.partitions": "8"' in shown
    assert "-Xmx1g" in shown

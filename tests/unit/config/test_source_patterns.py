"""Patterns of queues: what they match, and which of them match the same names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product
from time import process_time

import pytest

from penstock.config import ConfigError
from penstock.config.load import check
from penstock.config.source_patterns import is_pattern, matches, overlap
from penstock.config.topology import pools

NAMES = ["".join(text) for size in range(9) for text in product("ab", repeat=size)]
PATTERNS = ["".join(text) for size in range(1, 5) for text in product("ab*", repeat=size)]


def test_a_wildcard_stands_for_any_characters_and_the_rest_for_itself() -> None:
    names = ["mail", "mail-", "mail-a.b", "mail-\n", "email-a", "mail-[x]"]
    assert [name for name in names if matches("mail-*", name)] == names[1:4] + names[5:]
    assert matches("a.[x]?*", "a.[x]?1")
    assert not matches("a.*", "ab1")
    assert is_pattern("a*")
    assert not is_pattern("a?[b]")


def test_a_pattern_matches_as_a_shell_has_it() -> None:
    for pattern, name in product(PATTERNS, NAMES):
        assert matches(pattern, name) == fnmatchcase(name, pattern), (pattern, name)


def test_a_long_name_is_matched_in_time_that_grows_as_its_length_does() -> None:
    started_at = process_time()
    assert not matches("*-*-*-*x*-y", "-" * 200_000 + "-y")
    assert process_time() - started_at < 5.0  # tried at each place it takes years


def test_patterns_overlap_where_a_name_matches_both() -> None:
    # Two patterns of at most four characters that overlap do so in a name of at most eight.
    names = {p: frozenset(n for n in NAMES if fnmatchcase(n, p)) for p in PATTERNS}
    for one, other in product(PATTERNS, repeat=2):
        assert overlap(one, other) == bool(names[one] & names[other]), (one, other)


def shop(*queues: str, **more: object) -> dict[str, object]:
    return {
        "source": "shop", "command": ["celery", "worker"], "kind": "group",
        "queues": list(queues), **more,
    }  # fmt: skip


def pools_of(**tables: object) -> object:
    sources = {"shop": {"kind": "celery", "url": "redis://x"}, "other": {"kind": "rq"}}
    return pools(check({"sources": sources, "pools": tables}))


def test_patterns_of_two_pools_that_match_the_same_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'mail-\*' \(pool 'a'\) and '\*-low' \(pool 'b'\)"):
        pools_of(a=shop("mail-*"), b=shop("*-low"))
    pools_of(a=shop("mail-*"), b=shop("sms-*", "mail-vip"), c=shop("mail-*", source="other"))


@pytest.mark.parametrize("names", ["{queues}", "--queue={queue}"])
def test_a_library_that_takes_no_patterns_is_not_given_one(names: str) -> None:
    command = ["celery", "worker", "-Q", names]
    with pytest.raises(ConfigError, match="but celery takes names of queues only"):
        pools_of(a=shop("mail-*", command=command, preset="celery"))
    pools_of(a=shop("mail-*", preset="celery"))
    pools_of(a=shop("mail", command=command, preset="celery"))
    pools_of(a=shop("mail-*", command=command))  # a program of one's own may read them

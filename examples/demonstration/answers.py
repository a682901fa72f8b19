"""The expected results of the Spark jobs, computed in plain Python from the same files."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from examples import jobs


def expected(function: str, arguments: dict[str, Any]) -> int | None:
    """The right answer of a Spark job; None for other jobs."""
    if function == jobs.rate_movies.name:
        return movies_rated(arguments["stars"])
    if function == jobs.weigh_words.name:
        return weight_of_words(arguments["initial"])
    return None


def movies_rated(stars: int) -> int:
    ratings: dict[str, list[int]] = defaultdict(list)
    for line in jobs.RATINGS.read_text("utf-8").splitlines():
        _, movie, given, _ = line.split("::")
        ratings[movie].append(int(given))
    return sum(sum(given) / len(given) >= stars for given in ratings.values())


def weight_of_words(initial: str) -> int:
    pairs = (line.split("\t") for line in jobs.WORDS.read_text("utf-8").splitlines())
    return sum(int(mood) for word, mood in pairs if word.startswith(initial))

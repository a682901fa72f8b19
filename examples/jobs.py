"""Example jobs: plain Python, and PySpark on the data sets inside the installed `pyspark` package.

`make demo` runs them; workers import this module because `examples/penstock.toml` names it. They
have names of their own: `make demo` finds the module as `examples.jobs`, the compose stack
as `jobs`.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from importlib.util import find_spec
from pathlib import Path

from penstock.jobs import Backoff, Context, job


@job(name="make_thumbnail", queue="thumbnails")
def make_thumbnail(picture: int, seconds: float) -> str:
    """Waits as for a remote picture, then compresses something; returns a digest.

    Args:
        seconds: how long the picture takes to arrive.
    """
    time.sleep(seconds)
    pixels = hashlib.sha256(str(picture).encode()).digest() * 4_000
    return hashlib.sha256(zlib.compress(pixels, level=9)).hexdigest()


@job(name="send_invoice", queue="invoices")
def send_invoice(number: int, seconds: float) -> int:
    """Waits as for a mail server."""
    time.sleep(seconds)
    return number


class MailServerBusy(RuntimeError):
    """What mail servers say now and then; another try helps."""


@job(name="send_newsletter", queue="newsletters", tries=3, backoff=Backoff(first_seconds=0.5))
def send_newsletter(context: Context, number: int, seconds: float, refused_once: bool) -> int:
    """Waits as for a mail server, which refuses some letters the first time."""
    time.sleep(seconds)
    if refused_once and context.attempt == 1:
        raise MailServerBusy(f"letter {number}: try again later")
    return number


@job(name="rate_movies", queue="reports", tries=3)
def rate_movies(context: Context, lake: str, stars: int) -> int:
    """How many movies are rated ``stars`` or better on average.

    Reads the MovieLens sample, writes it as Parquet below ``lake``, reads that back, aggregates.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - what needs no Spark stays quick

    fields = f.split("value", "::")
    ratings = context.spark.read.text(str(RATINGS)).select(
        fields[1].cast("int").alias("movie"), fields[2].cast("int").alias("stars")
    )
    folder = _own_folder(context, lake, "ratings")
    ratings.write.parquet(folder)
    averages = context.spark.read.parquet(folder).groupBy("movie").agg(f.avg("stars").alias("mean"))
    return int(averages.where(f.col("mean") >= stars).count())


@job(name="weigh_words", queue="reports", tries=3)
def weigh_words(context: Context, lake: str, initial: str) -> int:
    """The sum of moods of all English words that begin with ``initial`` (AFINN word list)."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    fields = f.split("value", "\t")
    words = context.spark.read.text(str(WORDS)).select(
        fields[0].alias("word"), fields[1].cast("int").alias("mood")
    )
    folder = _own_folder(context, lake, "words")
    words.where(f.col("word").startswith(initial)).write.parquet(folder)
    total = context.spark.read.parquet(folder).agg(f.sum("mood")).first()
    return int(total[0] or 0) if total else 0


def _own_folder(context: Context, lake: str, table: str) -> str:
    """One folder for each attempt, named by its fencing token: attempts never mix."""
    return f"{lake}/{table}/{context.job_id}-{context.fencing_token}"


def _data(*parts: str) -> Path:
    spec = find_spec("pyspark")  # found, not imported: dispatching needs no Spark
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package pyspark, whose data sets the examples read")
    return Path(spec.origin).parent.joinpath("data", *parts)


RATINGS = _data("mllib", "als", "sample_movielens_ratings.txt")
"""1,501 lines ``user::movie::stars::time``."""
WORDS = _data("streaming", "AFINN-111.txt")
"""2,477 lines ``word<TAB>mood``, mood from -5 to 5."""

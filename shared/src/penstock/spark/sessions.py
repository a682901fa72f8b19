"""Spark sessions: the address and token of a remote Spark, and the tags of a job's work."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from penstock.config.load import ConfigError
from penstock.config.spark import Spark

_JOB = "penstock-job-"


def address(settings: Spark) -> str:
    """The remote server's address with its token, which must not be logged; empty: there is none.

    Spark's client sends a ``token`` over TLS only, which its server does not speak: without
    ``use_ssl`` in the address, the token goes as the header that the server looks at.

    Raises:
        ConfigError: the token cannot be read.
    """
    if not (settings.remote and settings.token_file):
        return settings.remote
    try:
        token = Path(settings.token_file).read_text("ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"spark.token_file cannot be read: {error}") from error
    parameter = f"token={quote(token)}"
    if "use_ssl" not in settings.remote:
        parameter = f"authorization={quote(f'Bearer {token}')}"
    opened = settings.remote if ";" in settings.remote else f"{settings.remote.rstrip('/')}/"
    return f"{opened};{parameter}"


def job_tag(job_id: str) -> str:
    """What all Spark work of a job is tagged with."""
    return f"{_JOB}{job_id}"


def job_of(tag: str) -> str:
    """The id of the job behind a tag; empty when it is none of these.

    Spark Connect lays its user and its session before the tag that it was given.
    """
    return tag.rpartition(_JOB)[2] if _JOB in tag else ""

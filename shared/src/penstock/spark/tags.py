"""What Spark work is tagged with, so that it and a Penstock job find each other."""

from __future__ import annotations

_JOB = "penstock-job-"


def job_tag(job_id: str) -> str:
    """What all Spark work of a job is tagged with."""
    return f"{_JOB}{job_id}"


def job_of(tag: str) -> str:
    """The id of the job behind a tag; empty when it is none of these.

    Spark Connect lays its user and its session before the tag that it was given.
    """
    return tag.rpartition(_JOB)[2] if _JOB in tag else ""

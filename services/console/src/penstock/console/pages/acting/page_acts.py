"""The acts that pages offer, in words."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.console.pages.acting.job_acts import JOB_ACTS
from penstock.console.pages.acting.page_act import PageAct
from penstock.console.pages.acting.platform_acts import PLATFORM_ACTS

ACTS: Mapping[str, PageAct] = {one.name: one for one in (*PLATFORM_ACTS, *JOB_ACTS)}
"""By name."""

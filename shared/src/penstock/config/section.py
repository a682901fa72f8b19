"""What settings are made of: bounds of their values, and a table of `penstock.toml`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0, le=1e9)]
NonNegative = Annotated[float, Meta(ge=0, le=1e9)]
Period = Annotated[float, Meta(gt=0, le=36_500)]
"""Days or hours; the broker counts nanoseconds in 64 bits."""
BudgetWindow = Annotated[float, Meta(ge=600, le=2_678_400)]
"""Ten minutes to a month."""
Count = Annotated[int, Meta(ge=0, le=100_000)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""What may stand in a subject."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `penstock.toml`."""

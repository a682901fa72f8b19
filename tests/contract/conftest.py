"""The client that most of the contract's stories use."""

from __future__ import annotations

import pytest
from tests.contract.setting import Examined

from penstock.bus.protocol import Bus


@pytest.fixture
async def bus(examined: Examined) -> Bus:
    return await examined.client()

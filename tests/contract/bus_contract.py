"""The bus contract: the same suite for every bus. A module that gives `examined` runs it all.

::

    class TestMyBus(BusContract): ...
"""

from __future__ import annotations

from tests.contract.queue_contract import QueueContract
from tests.contract.signal_contract import SignalContract
from tests.contract.storing_contract import StoringContract


class BusContract(StoringContract, QueueContract, SignalContract):
    """Needs the fixtures ``examined`` (:class:`tests.contract.setting.Examined`) and ``bus``."""

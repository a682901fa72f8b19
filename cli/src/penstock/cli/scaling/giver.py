"""The origin that an operator's orders carry."""

from __future__ import annotations

import getpass


def giver() -> str:
    """``cli/ann``: the user of this machine who gave an order; ``cli`` where there is no name."""
    try:
        return f"cli/{getpass.getuser()[:40]}"
    except (OSError, KeyError, ImportError):  # a container whose user has no entry
        return "cli"

"""Libraries that only some programs need: the extras of the distribution `penstock-client`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.config.load import ConfigError


class ExtraMissing(ConfigError):
    """The settings ask for something whose libraries are not installed; names the extra."""


@contextmanager
def needed(extra: str, feature: str, distribution: str = "penstock-client") -> Iterator[None]:
    """Around the import of a library that an extra of one of our distributions brings.

    Args:
        extra: such as ``encryption``.
        feature: what asks for it, at the beginning of a sentence.
        distribution: the one that has the extra.

    Raises:
        ExtraMissing: the library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            f"{feature} needs the package {(error.name or '').partition('.')[0]}; "
            f"run: pip install '{distribution}[{extra}]'"
        ) from error

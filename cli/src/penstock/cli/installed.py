"""Distributions that only some commands need: an image of one service holds no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from penstock.cli.errors import Failed


def is_importable(module: str) -> bool:
    """Whether Python finds the module; its package is imported to look, the module is not."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@contextmanager
def required(distribution: str) -> Iterator[None]:
    """Around the imports of a command that works only where a distribution is installed.

    Args:
        distribution: such as ``penstock-decider``.

    Raises:
        Failed: the distribution, or a package that it depends on, is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if not is_importable(distribution.replace("-", ".")):
            raise Failed(f"this command needs the package {distribution}; install it") from error
        raise Failed(
            f"{distribution} needs the package {error.name}; "
            f"install {distribution} with its dependencies"
        ) from error

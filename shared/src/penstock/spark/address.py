"""Where a Spark that is not the host's own is reached, and with which token."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from penstock.config.load import ConfigError
from penstock.config.spark import Spark


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

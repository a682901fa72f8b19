"""Why a login by the provider is refused: a sentence for the person, and details for the log."""

from __future__ import annotations


class LoginRefused(Exception):
    """Such a login is refused.

    Args:
        text: a sentence for the page, without anything about other people.
        detail: for the audit log; empty: the same.
    """

    def __init__(self, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.detail = detail or text


class ProviderFailed(LoginRefused):
    """The provider does not answer, or not as OpenID Connect has it."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The login provider does not answer as it should; the console's log says why.", detail
        )

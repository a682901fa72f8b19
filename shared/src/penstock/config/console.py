"""Settings of the console."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from penstock.config.oidc import Oidc
from penstock.config.secret_names import is_secret
from penstock.config.section import ALL, Port, Section

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[?[0-9A-Fa-f:.]{2,45}\]?")
_LONGEST_ARGUMENT = 200


class Console(Section, frozen=True, kw_only=True):
    """The console: web pages and an HTTP API.

    Attributes:
        enabled: whether ``penstock up`` starts it.
        address: of this machine. Without tokens only an address of loopback is accepted.
        port: 0 takes a free port and logs it.
        hosts: further names that a request may give as its host, beside ``address``, loopback and
            this machine's name: any other is refused, so that a page elsewhere cannot have a
            browser read the console under a name of its own (DNS rebinding).
        login_required: that also callers on this machine need an account or a token of the console
            (`penstock api`). Without it they may read, on an address of loopback alone.
        read_only: change nothing at all; for a key of the role ``console-reader``, which
            cannot. Sessions then end with the process.
        tokens_file: file with a line for each token: its name, its scopes separated by commas, and
            the SHA-256 of the token in hexadecimal.
        reader_nkey_file: seed of a key of the role ``console-reader``: decisions are recomputed and
            simulated with it, in processes of their own. Empty: with the console's own key.
        tls_certificate_file: PEM, with the chain; empty: plain HTTP.
        tls_key_file: PEM, of that certificate.
        folder: for its files, which can be removed at any time; empty: below ``host.run_dir``.
        alert_networks: private networks, such as ``10.1.0.0/16`` or ``127.0.0.0/8``, whose
            addresses messages of alerts may be sent to; others are refused.
        public_url: where people reach this console, for links in messages, such as
            ``https://penstock.example.org``; empty for no links. Logins by OpenID Connect need it.
        oidc: logins by an OpenID Connect provider.
        heartbeat_url: of a service outside that raises the alarm when no request comes: the console
            that leads alerts posts to it, as long as the broker answers and rules are judged.
        heartbeat_seconds: from one request to the next.
        searchable_arguments: arguments of jobs that lists are searched by (``args.table:orders``),
            by callers with the scope ``payload``: ``table`` of every function, or
            ``load_orders:table`` of one, by its name, or what follows its last dot
            (``shop.jobs.load_orders``). Their values are kept in the console's files. Masked and
            encrypted arguments are not searched.
    """

    of_machine = ALL

    enabled: bool = True
    address: str = "127.0.0.1"
    port: Port = 9470
    hosts: tuple[str, ...] = ()
    login_required: bool = False
    read_only: bool = False
    tokens_file: str = ""
    reader_nkey_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    folder: str = ""
    alert_networks: tuple[str, ...] = ()
    public_url: str = ""
    oidc: Oidc = Oidc()
    heartbeat_url: str = ""
    heartbeat_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    searchable_arguments: Annotated[tuple[str, ...], Meta(max_length=16)] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for argument in self.searchable_arguments:
            _check_searchable(argument)
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        for network in self.alert_networks:
            try:
                ipaddress.ip_network(network, strict=False)
            except ValueError as error:
                raise ValueError(
                    f"alert_networks: found {network!r}, expected a network such as '10.1.0.0/16'"
                ) from error
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f"hosts: found {host!r}, expected a name without scheme and port, such as "
                    "'penstock.example.org'"
                )
        if self.public_url and not _is_web_address(self.public_url):
            raise ValueError(
                f"public_url: found {self.public_url!r}, expected an address such as "
                "'https://penstock.example.org'"
            )
        if self.oidc.issuer and not self.public_url:
            raise ValueError(
                "public_url is missing: logins by console.oidc come back to "
                "PUBLIC_URL/login/oidc/callback"
            )
        if self.heartbeat_url and not _is_web_address(self.heartbeat_url):
            raise ValueError(
                "heartbeat_url: found no web address, expected one such as "
                "'https://watch.example.org/ping/…'"
            )


def _check_searchable(argument: str) -> None:
    name = argument.rpartition(":")[2]
    if len(argument) > _LONGEST_ARGUMENT or not name.isidentifier():
        raise ValueError(
            f"searchable_arguments: found {argument[:_LONGEST_ARGUMENT]!r}, expected the name of "
            "an argument such as 'table', or 'load_orders:table' for that of one function"
        )
    if is_secret(name):
        raise ValueError(
            f"searchable_arguments: {argument!r} is masked, since its name is that of a secret; "
            "masked arguments are never searched"
        )


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)

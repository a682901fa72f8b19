"""Which addresses messages may be sent to: looked at when a connection is made.

A name is resolved once, each address that it has is checked, and the connection goes to one of
these; so a name that resolves to something else a moment later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

_PUBLIC_IPV6 = ipaddress.ip_network("2000::/3")
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 addresses as a network without IPv4 reaches them (NAT64, RFC 6052)."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(OSError):
    """The address is of this machine or of a private network, and is not allowed."""


def check_address(text: str, allowed: Sequence[str]) -> None:
    """Refuses what is not on the public network, but for what the settings allow.

    Args:
        text: an IP address.
        allowed: networks such as ``10.1.0.0/16``.

    Raises:
        AddressRefused: names the address and the setting.
    """
    plain = _plain(ipaddress.ip_address(text.partition("%")[0]))
    networks = (ipaddress.ip_network(network, strict=False) for network in allowed)
    if any(plain in network for network in networks if network.version == plain.version):
        return
    is_public = plain.is_global and (plain.version == 4 or plain in _PUBLIC_IPV6)
    if not is_public or plain.is_multicast:
        raise AddressRefused(
            f"{text} is of this machine or a private network; add its network to "
            "console.alert_networks to allow it"
        )


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, where it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address

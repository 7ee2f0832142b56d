"""Network ranges: which principal an address belongs to, and which addresses count as one."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

__all__ = ["Network", "NetworkTable", "contains", "parse_network", "throttled_as"]

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_IPV6_HOST_BITS = 64
_Owner = TypeVar("_Owner")


def parse_network(text: str) -> Network:
    """Return a range such as `10.1.0.0/16`, or a single address; raise ValueError.

    Bits behind the prefix must be zero.
    """
    return ipaddress.ip_network(text)


def contains(networks: Sequence[Network], host: str) -> bool:
    """Return whether an address is in one of the ranges; an empty or unknown one is not."""
    address = _parse(host)
    return address is not None and any(address in network for network in networks)


def throttled_as(host: str) -> str:
    """Return the address that failures are counted for: of IPv6 the /64, which one site owns."""
    address = _parse(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _IPV6_HOST_BITS), strict=False))
    return host if address is None else str(address)


def _parse(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse a peer's address; an IPv4 address that an IPv6 socket shows is an IPv4 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class NetworkTable(Generic[_Owner]):
    """Owners of network ranges; of several that contain an address, the smallest range counts."""

    def __init__(self, entries: Iterable[tuple[Network, _Owner]] = ()) -> None:
        self._entries = sorted(entries, key=lambda entry: -entry[0].prefixlen)

    def find(self, host: str) -> _Owner | None:
        """Return the owner of an address, None if it has none."""
        if not self._entries:
            return None
        address = _parse(host)
        if address is None:
            return None
        return next((owner for network, owner in self._entries if address in network), None)

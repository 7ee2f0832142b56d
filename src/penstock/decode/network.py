"""TCP segments and UDP datagrams of captured packets."""

import ipaddress
import struct
from typing import Final, NamedTuple

from penstock.decode.pcap import Packet

__all__ = ["ACK", "RST", "SYN", "Endpoint", "Segment", "Unreadable", "segment_of"]

_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN: Final = frozenset({0x8100, 0x88A8, 0x9100})
_RAW: Final = frozenset({12, 14, 101, 228, 229})
_TCP, _UDP = 6, 17
_HOP, _ROUTING, _FRAGMENT, _OPTIONS, _AUTHENTICATION = 0, 43, 44, 60, 51
SYN, RST, ACK = 0x02, 0x04, 0x10


class Endpoint(NamedTuple):
    """An address and a port."""

    address: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


class Segment(NamedTuple):
    """Bytes from one endpoint to another; `sequence` is None for a datagram.

    `length` is the number of bytes on the wire; `data` has fewer if the capture truncated them.
    """

    source: Endpoint
    target: Endpoint
    sequence: int | None
    flags: int
    data: bytes
    length: int


class Unreadable(Exception):
    """An IP packet cannot be read, for `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def segment_of(packet: Packet) -> Segment | None:
    """Return the segment of a packet, None if it has none; raise Unreadable."""
    try:
        data = _network_layer(packet)
        if not data:
            return None
        return _version_6(data) if data[0] >> 4 == 6 else _version_4(data)
    except (struct.error, IndexError, ipaddress.AddressValueError):
        raise Unreadable("its headers are cut short") from None


def _network_layer(packet: Packet) -> bytes:
    """Return the IP packet, empty if there is none."""
    link, data = packet
    match link:
        case 1:  # Ethernet
            start, kind = 14, _u16(data, 12)
            while kind in _VLAN:
                kind = _u16(data, start + 2)
                start += 4
        case 113:  # Linux cooked
            start, kind = 16, _u16(data, 14)
        case 276:  # Linux cooked, version 2
            start, kind = 20, _u16(data, 0)
        case 0 | 108:  # loopback: 4 bytes of address family, not needed: IP has a version
            start, kind = 4, _IPV4
        case _ if link in _RAW:
            start, kind = 0, _IPV4
        case _:
            raise Unreadable(f"links of type {link} are not known here")
    found = data[start:] if kind in {_IPV4, _IPV6} else b""
    return found if found[:1] and found[0] >> 4 in {4, 6} else b""


def _version_4(data: bytes) -> Segment | None:
    header = (data[0] & 0x0F) * 4
    total, fragment, protocol = _u16(data, 2), _u16(data, 6), data[9]
    if protocol not in {_TCP, _UDP}:
        return None
    if fragment & 0x3FFF:
        raise Unreadable("it is a fragment of an IP packet")
    addresses = str(ipaddress.IPv4Address(data[12:16])), str(ipaddress.IPv4Address(data[16:20]))
    length = (total or len(data)) - header  # 0 with segmentation offload
    return _transport(protocol, addresses, data[header : header + length], length)


def _version_6(data: bytes) -> Segment | None:
    length, following = _u16(data, 4), data[6]
    addresses = str(ipaddress.IPv6Address(data[8:24])), str(ipaddress.IPv6Address(data[24:40]))
    if not length:
        length = len(data) - 40
    start = 40
    while following in {_HOP, _ROUTING, _OPTIONS, _AUTHENTICATION}:
        unit = 4 if following == _AUTHENTICATION else 8
        size = data[start + 1] * unit + 8
        following = data[start]
        start += size
    if following == _FRAGMENT:
        raise Unreadable("it is a fragment of an IP packet")
    length -= start - 40
    return _transport(following, addresses, data[start : start + length], length)


def _transport(
    protocol: int, addresses: tuple[str, str], data: bytes, length: int
) -> Segment | None:
    if protocol not in {_TCP, _UDP}:
        return None
    ports = struct.unpack_from(">HH", data)
    source, target = (Endpoint(*pair) for pair in zip(addresses, ports, strict=True))
    if protocol == _UDP:
        return Segment(source, target, None, 0, data[8:], length - 8)
    (sequence,) = struct.unpack_from(">I", data, 4)
    header = (data[12] >> 4) * 4
    return Segment(source, target, sequence, data[13], data[header:], max(0, length - header))


def _u16(data: bytes, at: int) -> int:
    number: int = struct.unpack_from(">H", data, at)[0]
    return number

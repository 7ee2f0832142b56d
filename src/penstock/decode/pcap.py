"""Files of packets: classic pcap and pcapng, in either byte order.

A classic file has a header, then packets; the fraction is of micro- or nanoseconds:

    ┌───────┬──────────┬──────────┬─────────┬──────┐ ┌─────────┬──────────┬──────────┬──────────┐
    │ magic │ version  │ unused   │ snaplen │ link │ │ seconds │ fraction │ captured │ original │
    │ u32   │ u16, u16 │ u32, u32 │ u32     │ u32  │ │ u32     │ u32      │ u32      │ u32      │
    └───────┴──────────┴──────────┴─────────┴──────┘ └─────────┴──────────┴──────────┴──────────┘

pcapng has blocks; both length fields count the whole block:

    ┌──────┬────────┬────────────────────┬────────┐
    │ type │ length │ body, a multiple   │ length │
    │ u32  │ u32    │ of 4 bytes         │ u32    │
    └──────┴────────┴────────────────────┴────────┘
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["BadPacketFile", "Packet", "is_packet_file", "packets"]

_CLASSIC: Final = {
    bytes.fromhex("d4c3b2a1"): "<",
    bytes.fromhex("a1b2c3d4"): ">",
    bytes.fromhex("4d3cb2a1"): "<",  # nanoseconds
    bytes.fromhex("a1b23c4d"): ">",
}
_SECTION: Final = bytes.fromhex("0a0d0d0a")
_SECTION_ORDERS: Final = {bytes.fromhex("4d3c2b1a"): "<", bytes.fromhex("1a2b3c4d"): ">"}
_INTERFACE: Final = 1


class BadPacketFile(ValueError):
    """A packet file is damaged or truncated at `offset`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason} at byte {self.offset} of the file"


class Packet(NamedTuple):
    """A captured packet, from its `link` header on; truncated if less was captured."""

    link: int
    data: bytes


def is_packet_file(data: bytes) -> bool:
    """Return whether a file is pcap or pcapng."""
    return data[:4] in _CLASSIC or data[:4] == _SECTION


def packets(data: bytes) -> Iterator[Packet]:
    """Yield the packets of a file in order; raise BadPacketFile at damage."""
    if data[:4] == _SECTION:
        yield from _next_generation(data)
    else:
        yield from _classic(data)


def _classic(data: bytes) -> Iterator[Packet]:
    order = _CLASSIC[data[:4]]
    if len(data) < 24:
        raise BadPacketFile(0, "the header is cut short")
    (link,) = struct.unpack_from(f"{order}I", data, 20)
    record = struct.Struct(f"{order}4I")
    position = 24
    while position < len(data):
        start = position + record.size
        if start > len(data):
            raise BadPacketFile(position, "a packet is cut short")
        _, _, captured, _ = record.unpack_from(data, position)
        if start + captured > len(data):
            raise BadPacketFile(position, "a packet is cut short")
        yield Packet(link & 0xFFFF, data[start : start + captured])
        position = start + captured


def _next_generation(data: bytes) -> Iterator[Packet]:
    order = "<"
    links: list[int] = []
    position = 0
    while position < len(data):
        if data[position : position + 4] == _SECTION:
            order = _SECTION_ORDERS.get(data[position + 8 : position + 12], "")
            links = []
            if not order:
                raise BadPacketFile(position, "a section has no byte order")
        if position + 12 > len(data):
            raise BadPacketFile(position, "a block is cut short")
        kind, length = struct.unpack_from(f"{order}II", data, position)
        if length < 12 or length % 4 or position + length > len(data):
            raise BadPacketFile(position, "a block is cut short or has a wrong length")
        body = data[position + 8 : position + length - 4]
        try:
            if kind == _INTERFACE:
                links.append(struct.unpack_from(f"{order}H", body)[0])
            else:
                packet = _packet(kind, body, order, links)
                if packet is not None:
                    yield packet
        except (struct.error, IndexError):
            raise BadPacketFile(position, "a block is too short, or of no interface") from None
        position += length


def _packet(kind: int, body: bytes, order: str, links: list[int]) -> Packet | None:
    """Return the packet of a block; raise struct.error or IndexError if it is malformed."""
    match kind:
        case 6:  # enhanced packet block
            interface, _, _, captured, _ = struct.unpack_from(f"{order}5I", body)
            start = 20
        case 2:  # obsolete packet block
            interface, _, _, _, captured, _ = struct.unpack_from(f"{order}HH4I", body)
            start = 20
        case 3:  # simple packet block
            interface, start = 0, 4
            captured = min(struct.unpack_from(f"{order}I", body)[0], len(body) - 4)
        case _:
            return None
    if start + captured > len(body):
        raise IndexError
    return Packet(links[interface], body[start : start + captured])

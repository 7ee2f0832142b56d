"""Captured packets by struct alone, from the formats' own descriptions."""

import ipaddress
import struct
from collections.abc import Iterable

CLIENT, SERVER = ("127.0.0.1", 5000), ("127.0.0.1", 7000)
CLIENT6, SERVER6 = ("2001:db8::1", 5000), ("2001:db8::2", 7000)
ETHERNET, NULL, LOOP, RAW, COOKED, COOKED2 = 1, 0, 108, 101, 113, 276
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

End = tuple[str, int]


def tcp(source: End, target: End, sequence: int, data: bytes = b"", *, flags: int = ACK) -> bytes:
    """An IP packet with a TCP segment that has 4 bytes of options."""
    header = struct.pack(
        ">HHIIBBHHH", source[1], target[1], sequence % 2**32, 0, 6 << 4, flags, 8192, 0, 0
    )
    return ip(source, target, 6, header + bytes(4) + data)


def udp(source: End, target: End, data: bytes) -> bytes:
    head = struct.pack(">HHHH", source[1], target[1], 8 + len(data), 0)
    return ip(source, target, 17, head + data)


def ip(source: End, target: End, protocol: int, body: bytes, *, fragment: int = 0) -> bytes:
    one, two = ipaddress.ip_address(source[0]), ipaddress.ip_address(target[0])
    if one.version == 4:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, fragment, 64, protocol, 0)
        return head + one.packed + two.packed + body
    options = bytes([protocol, 0, 1, 4, 0, 0, 0, 0])  # a hop-by-hop header in between
    head = struct.pack(">IHBB", 6 << 28, len(options) + len(body), 0, 64)
    return head + one.packed + two.packed + options + body


def linked(link: int, packet: bytes) -> bytes:
    """A packet behind the header of its link."""
    kind = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    match link:
        case 1:
            return bytes(12) + struct.pack(">H", kind) + packet
        case 0:
            return struct.pack("<I", 2 if kind == 0x0800 else 10) + packet
        case 108:
            return struct.pack(">I", 2 if kind == 0x0800 else 10) + packet
        case 113:
            return struct.pack(">HHH8sH", 0, 772, 6, bytes(8), kind) + packet
        case 276:
            return struct.pack(">HHIHBB8s", kind, 0, 1, 772, 0, 6, bytes(8)) + packet
    return packet


def pcap(
    packets: Iterable[bytes], *, link: int = ETHERNET, order: str = "<", nanoseconds: bool = False
) -> bytes:
    """A classic file."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    parts = [struct.pack(f"{order}IHHIIII", magic, 2, 4, 0, 0, 65535, link)]
    for number, packet in enumerate(packets):
        data = linked(link, packet)
        parts += [struct.pack(f"{order}IIII", 1_700_000_000, number, len(data), len(data)), data]
    return b"".join(parts)


def block(kind: int, body: bytes, *, order: str = "<") -> bytes:
    padded = body + bytes(-len(body) % 4)
    length = struct.pack(f"{order}I", 12 + len(padded))
    return struct.pack(f"{order}I", kind) + length + padded + length


def pcapng(packets: Iterable[bytes], *, link: int = ETHERNET, order: str = "<") -> bytes:
    """A file of blocks: section, interface, a block that nobody knows, packets."""
    section = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)
    parts = [
        block(0x0A0D0D0A, section, order=order),
        block(1, struct.pack(f"{order}HHI", link, 0, 65535), order=order),
        block(0x0BAD, b"unknown", order=order),
    ]
    for number, packet in enumerate(packets):
        data = linked(link, packet)
        if number % 2:
            parts.append(block(3, struct.pack(f"{order}I", len(data)) + data, order=order))
        else:
            head = struct.pack(f"{order}5I", 0, 0, number, len(data), len(data))
            parts.append(block(6, head + data, order=order))
    return b"".join(parts)


def session(
    to_server: bytes, to_client: bytes, *, client: End = CLIENT, server: End = SERVER
) -> list[bytes]:
    """The packets of a connection from its opening to its end."""
    return [
        tcp(client, server, 99, flags=SYN),
        tcp(server, client, 499, flags=SYN | ACK),
        tcp(client, server, 100),
        tcp(client, server, 100, to_server, flags=PSH | ACK),
        tcp(server, client, 500, to_client, flags=PSH | ACK),
        tcp(client, server, 100 + len(to_server), flags=FIN | ACK),
        tcp(server, client, 500 + len(to_client), flags=FIN | ACK),
    ]

"""Captures: the format of a file, and the connections in it."""

import dataclasses
import enum
from collections.abc import Iterator
from typing import NamedTuple

from penstock.decode.hexdump import NotHex, from_hex, looks_like_hex
from penstock.decode.network import ACK, RST, SYN, Endpoint, Segment, Unreadable, segment_of
from penstock.decode.pcap import BadPacketFile, is_packet_file, packets
from penstock.decode.tcp import Reassembly
from penstock.errors import ErrorCode, OperatorError

__all__ = ["Capture", "CaptureFormat", "CaptureUnreadable", "Connection", "Piece", "read_capture"]


class CaptureFormat(enum.StrEnum):
    """File format of a capture."""

    AUTO = "auto"
    RAW = "raw"
    HEX = "hex"
    PCAP = "pcap"


class CaptureUnreadable(OperatorError):
    """A file is not a capture, or not in the given format."""

    code = ErrorCode.CANNOT_READ
    template = "cannot decode {path}: {reason}; {remedy}"

    path: str
    reason: str
    remedy: str


class Piece(NamedTuple):
    """Consecutive bytes from one side, or a gap of bytes that the capture lacks."""

    forward: bool
    data: bytes = b""
    gap: int = 0


@dataclasses.dataclass(slots=True)
class Connection:
    """The two sides of a connection and their bytes, in the order of the capture.

    `source` is the side seen first; it sent the pieces with `forward`. `opened` is whether it
    opened the connection, None if the capture does not show the start. Without a `target` only one
    side was captured.
    """

    source: str
    target: str = ""
    opened: bool | None = None
    pieces: list[Piece] = dataclasses.field(default_factory=list)

    @property
    def has_both(self) -> bool:
        """Whether both sides were captured."""
        return bool(self.target)

    def name(self, *, forward: bool) -> str:
        """Return the connection's name, client first; `forward` if the source is the client."""
        if not self.target:
            return self.source
        ends = (self.source, self.target) if forward else (self.target, self.source)
        return " → ".join(ends)

    def start(self, size: int) -> tuple[bytes, bytes]:
        """Return the first bytes of both sides, at least `size` of each if available."""
        found = {True: bytearray(), False: bytearray()}
        for piece in self.pieces:
            side = found[piece.forward]
            if len(side) < size:
                side += piece.data
        return bytes(found[True]), bytes(found[False])


class Capture(NamedTuple):
    """The connections of a file, and notes on its unreadable parts."""

    connections: list[Connection]
    remarks: list[str]


def read_capture(data: bytes, *, name: str, form: CaptureFormat = CaptureFormat.AUTO) -> Capture:
    """Read a capture file; raise CaptureUnreadable."""
    if form is CaptureFormat.AUTO:
        if is_packet_file(data):
            form = CaptureFormat.PCAP
        else:
            form = CaptureFormat.HEX if looks_like_hex(data) else CaptureFormat.RAW
    if form is CaptureFormat.PCAP:
        if not is_packet_file(data):
            raise CaptureUnreadable(name, "it is neither pcap nor pcapng", "see --format")
        return _from_packets(data, name)
    if form is CaptureFormat.HEX:
        try:
            data = from_hex(data.decode())
        except UnicodeDecodeError:
            raise CaptureUnreadable(name, "it is not text", "try --format raw") from None
        except NotHex as error:
            raise CaptureUnreadable(name, str(error), "see --format") from None
    if not data:
        raise CaptureUnreadable(name, "there are no bytes in it", "give a file with a capture")
    return Capture([Connection(name, pieces=[Piece(forward=True, data=data)])], [])


# --- Packets --------------------------------------------------------------------------------------


class _ConnectionBuilder:
    """A connection under reassembly from the packets of a file."""

    def __init__(self, segment: Segment) -> None:
        self.source = segment.source
        self.connection = Connection(str(segment.source), str(segment.target))
        self._sides = {True: Reassembly(), False: Reassembly()}

    def take(self, segment: Segment) -> None:
        forward = segment.source == self.source
        if segment.sequence is None:
            self._add(forward, iter((segment.data,)))
            return
        sequence = segment.sequence
        if segment.flags & SYN:
            self._sides[forward].opened(sequence)
            self.connection.opened = forward is not bool(segment.flags & ACK)
            sequence += 1
        self._add(forward, self._sides[forward].take(sequence, segment.data))

    def is_over(self, segment: Segment) -> bool:
        """Return whether a segment opens a new connection between the same endpoints."""
        opens = segment.flags & (SYN | ACK) == SYN
        return opens and bool(self.connection.pieces)

    def finish(self) -> Connection:
        for forward, side in self._sides.items():
            self._add(forward, side.finish())
        return self.connection

    def _add(self, forward: bool, parts: Iterator[bytes | int]) -> None:  # noqa: FBT001
        for part in parts:
            if isinstance(part, int):
                self.connection.pieces.append(Piece(forward, gap=part))
            elif part:
                self.connection.pieces.append(Piece(forward, part))


def _from_packets(data: bytes, name: str) -> Capture:
    found: list[_ConnectionBuilder] = []
    open_ones: dict[tuple[frozenset[Endpoint], bool], _ConnectionBuilder] = {}
    damage: BadPacketFile | None = None
    skipped: dict[str, int] = {}
    count = 0
    try:
        for count, packet in enumerate(packets(data), 1):  # noqa: B007
            try:
                segment = segment_of(packet)
            except Unreadable as error:
                skipped[error.reason] = skipped.get(error.reason, 0) + 1
                continue
            if segment is None or segment.flags & RST or not _wanted(segment):
                continue
            key = (frozenset((segment.source, segment.target)), segment.sequence is None)
            both = open_ones.get(key)
            if both is None or both.is_over(segment):
                both = open_ones[key] = _ConnectionBuilder(segment)
                found.append(both)
            both.take(segment)
    except BadPacketFile as error:
        damage = error
    left_out = [
        f"{_packets(number)} {'is' if number == 1 else 'are'} left out: {reason}"
        for reason, number in skipped.items()
    ]
    connections = [both.finish() for both in found]
    connections = [connection for connection in connections if connection.pieces]
    if not connections:
        nothing, remedy = "no TCP connection with data in", "capture the broker's port"
        reason = f"{nothing} its {_packets(count)}"
        if damage is not None:
            reason = f"{damage}, and there is {nothing} the {_packets(count)} before"
            remedy = "give the whole file"
        raise CaptureUnreadable(name, "; ".join([reason, *left_out]), remedy)
    cut = [] if damage is None else [f"{damage}; what is before it is decoded"]
    return Capture(connections, [*cut, *left_out])


def _packets(count: int) -> str:
    return "1 packet" if count == 1 else f"{count} packets"


def _wanted(segment: Segment) -> bool:
    """Return whether a segment may belong to a supported protocol: over UDP only herald."""
    return segment.sequence is not None or segment.data[:2] in {b"\xfe\xca", b"\xca\xfe"}

"""Decode a capture of packets, pcap or pcapng: each side of each connection, as `penstock decode`.

TCP is reassembled, and the protocol and the client are detected for each connection. The file is
held in memory.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa

from penstock.decode import CaptureFormat, CaptureUnreadable, Connection, read_capture
from penstock.decode.identify import identify
from penstock.errors import WireError
from penstock.limits import DECODE_CAPTURE_BYTES_MAX, DETECT_BYTES_MAX
from penstock.spark.capture_files import (
    Capture,
    DecodedRows,
    Fault,
    capture_pieces,
    decode_pieces,
)
from penstock.spark.capture_roles.role import CaptureContext, CapturedSide, new_role

__all__ = ["PACKET_SUFFIXES", "decode_packet_file"]

PACKET_SUFFIXES: Final = (".pcap", ".pcapng")


def decode_packet_file(capture: Capture, context: CaptureContext) -> Iterator[pa.RecordBatch]:
    """Yield the records and the errors of a file, with the columns of DECODED_SCHEMA.

    Positions are those of one side's bytes. Raise CannotReadCapture; the content of a file never
    raises an error.
    """
    rows = DecodedRows(capture, context)
    if capture.length > DECODE_CAPTURE_BYTES_MAX:
        text = f"more than {DECODE_CAPTURE_BYTES_MAX} bytes; cut it, for example with editcap"
        rows.error(0, capture.length, Fault.PACKET_FILE, text)
        yield from rows.flush()
        return
    data = b"".join(capture_pieces(capture.file, capture.length))
    try:
        name = PurePosixPath(capture.file).name
        found = read_capture(data, name=name, form=CaptureFormat.PCAP)
    except CaptureUnreadable as error:
        rows.error(0, capture.length, Fault.PACKET_FILE, f"{error.reason}; {error.remedy}")
        yield from rows.flush()
        return
    for remark in found.remarks:
        rows.error(0, capture.length, Fault.PACKET_FILE, remark)
    yield from rows.flush()
    for connection in found.connections:
        yield from _decode_connection(capture, connection, context)


def _decode_connection(
    capture: Capture, connection: Connection, context: CaptureContext
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of both sides of a connection, those of the client first."""
    first, second = connection.start(DETECT_BYTES_MAX)
    try:
        found = identify(first, second, from_client=connection.opened)
    except WireError as error:
        named = capture._replace(connection=connection.name(forward=connection.opened is not False))
        rows = DecodedRows(named, context)
        size = sum(len(piece.data) for piece in connection.pieces)
        rows.error(0, size, error.code, str(error))
        yield from rows.flush()
        return
    for from_client in (True, False):
        data, gap, rest = _side(connection, forward=from_client is found.from_client)
        side = capture._replace(
            connection=connection.name(forward=found.from_client),
            protocol=found.protocol.label,
            direction="c2s" if from_client else "s2c",
            length=len(data),
        )
        rows = DecodedRows(side, context)
        rows.protocol = found.protocol
        role = new_role(
            found.protocol,
            CapturedSide(found.order, context, from_client, data[:DETECT_BYTES_MAX]),
        )
        yield from decode_pieces([data] if data else [], side, role, rows)
        if gap:
            text = f"the capture lacks {gap} bytes here; the rest of this side is not decoded"
            rows.error(len(data), gap + rest, Fault.CUT_SHORT, text)
            yield from rows.flush()


def _side(connection: Connection, *, forward: bool) -> tuple[bytes, int, int]:
    """Return one side's bytes up to the first gap, the length of the gap, and of the rest."""
    parts: list[bytes] = []
    gap = rest = 0
    for piece in connection.pieces:
        if piece.forward is not forward:
            continue
        if gap:
            rest += len(piece.data) + piece.gap
        elif piece.gap:
            gap = piece.gap
        else:
            parts.append(piece.data)
    return b"".join(parts), gap, rest

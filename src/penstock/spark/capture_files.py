"""Decode one capture file into records and errors; the file is read in pieces.

An invalid frame is an error, and decoding continues with the next frame. Where the framing is lost,
and a broker would close the connection, one error covers the rest of the file.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from penstock._kernels.block import Block, TopicSlots
from penstock.decode.reading import reading_of
from penstock.errors import ErrorCode, OperatorError, OutOfSequence, WireError
from penstock.limits import (
    CAPTURE_ERRORS_MAX,
    CAPTURE_READ_BYTES,
    DETECT_BYTES_MAX,
    SPARK_BATCH_BYTES,
    SPARK_BATCH_ROWS,
)
from penstock.model import Durability
from penstock.protocols import PROTOCOLS, Protocol
from penstock.spark.capture_roles.role import CaptureContext, Captured, CapturedSide, Role, new_role
from penstock.storage.arrow.format.segment import END_OF_STREAM, Columns, encode_row_group, head
from penstock.storage.dictionaries import RECORD_SCHEMA
from penstock.storage.schema import RECORD_COLUMNS
from penstock.wire.decoder import Rejected
from penstock.wire.detect import Detected, conclude

__all__ = [
    "AUTO",
    "DECODED_SCHEMA",
    "CannotReadCapture",
    "Capture",
    "DecodedRows",
    "Fault",
    "capture_pieces",
    "decode_capture",
    "decode_pieces",
]

AUTO: Final = "auto"
"""The protocol is detected from the client's first bytes."""

DECODED_SCHEMA: Final = pa.schema(
    [
        *RECORD_SCHEMA,
        ("file", pa.utf8()),
        ("connection", pa.utf8()),
        ("direction", pa.utf8()),
        ("position", pa.int64()),
        ("length", pa.int64()),
        ("error_code", pa.utf8()),
        ("error", pa.utf8()),
    ]
)
"""The columns of a record, of its place in a capture, and of an error."""

_HEAD: Final = head(0, partition=0, base_offset=0, previous_end=0, previous_crc=0)
_NO_TIMESTAMP: Final = -1
"""`timestampType` of a record without a timestamp, as in Kafka."""


class Fault(enum.StrEnum):
    """Error codes of captures, besides those of `errors.ErrorCode`."""

    CAPTURE_NAME = "capture-name"
    CUT_SHORT = "cut-short"
    PACKET_FILE = "packet-file"


class CannotReadCapture(OperatorError):
    """An executor cannot read a capture file of the folder."""

    code = ErrorCode.CANNOT_READ
    template = (
        "cannot read the capture {path}: {reason}; let executors see the folder "
        "under this name, or take the file out of it"
    )

    path: str
    reason: str


class Capture(NamedTuple):
    """A file with the bytes that one side of a connection sent.

    Connection, protocol and direction are None if the file name does not contain them. Bytes beyond
    `length`, which were added since the folder was listed, are not read.
    """

    file: str
    connection: str | None
    protocol: str | None
    direction: str | None
    length: int

    @property
    def from_client(self) -> bool:
        """Whether the client sent these bytes."""
        return self.direction == "c2s"

    @property
    def other_side(self) -> str:
        """The client's file, if this is the broker's."""
        return self.file.removesuffix(".s2c.bin") + ".c2s.bin"


def decode_capture(capture: Capture, context: CaptureContext) -> Iterator[pa.RecordBatch]:
    """Yield the records and the errors of one file, with the columns of DECODED_SCHEMA.

    Raise CannotReadCapture. The content of a file never raises an error.
    """
    rows = DecodedRows(capture, context)
    if capture.protocol is None or capture.direction is None:
        text = f"{PurePosixPath(capture.file).name} is not named connection.protocol.direction.bin"
        rows.error(0, capture.length, Fault.CAPTURE_NAME, text)
        yield from rows.flush()
        return
    own = _first_bytes(capture.file, capture.length)
    try:
        detected = _detected(capture, own)
    except WireError as error:
        rows.error(0, capture.length, error.code, str(error))
        yield from rows.flush()
        return
    if detected is None:
        text = f"the file ends before its protocol is settled, after {capture.length} bytes"
        if capture.length:
            rows.error(0, capture.length, Fault.CUT_SHORT, text)
        yield from rows.flush()
        return
    side = CapturedSide(detected.order, context, capture.from_client, own)
    role = new_role(detected.protocol, side)
    rows.protocol = detected.protocol
    yield from decode_pieces(capture_pieces(capture.file, capture.length), capture, role, rows)


def decode_pieces(
    pieces: Iterable[bytes], capture: Capture, role: Role, rows: "DecodedRows"
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a role decodes from consecutive bytes; `capture` has their length."""
    base = 0  # position of the current bytes in the file
    rest = b""
    for piece in pieces:
        data = memoryview(rest + piece if rest else piece)
        position = 0
        while position < len(data):
            end = position
            if role.has_kernel:
                end = role.scan(data, position)
                if len(rows.context.batch):
                    yield from rows.add_batch(role)
            try:
                step = role.decode_at(data, end) if end < len(data) else None
            except WireError as error:
                start = base + end
                rows.error(start, capture.length - start, error.code, str(error))
                yield from rows.flush()
                return
            position = end
            if step is None:
                break
            packet, position = step
            if isinstance(packet, Rejected):
                rows.error(base + end, position - end, packet.error.code, str(packet.error))
            else:
                try:
                    record = role.record(packet)
                except OutOfSequence as error:
                    rows.error(base + end, position - end, error.code, str(error))
                else:
                    if record is not None and not rows.add(record):
                        yield from rows.flush()
                        rows.add(record)
            if rows.full:
                yield from rows.flush()
        rows.context.batch.clear()
        rest = bytes(data[position:])
        base += position
        if base >= rows.flushed_at + SPARK_BATCH_BYTES:  # headers count too
            rows.flushed_at = base
            yield from rows.flush()
    if rest:
        text = f"the file ends inside a frame, of which {len(rest)} bytes are there"
        rows.error(base, len(rest), Fault.CUT_SHORT, text)
    yield from rows.flush()


# --- Rows -------------------------------------------------------------------------------------


class DecodedRows:
    """Collects records and errors of one file and builds Arrow batches."""

    def __init__(self, capture: Capture, context: CaptureContext) -> None:
        self.context = context
        self.protocol: Protocol | None = None
        self.flushed_at = 0
        self._capture = capture
        self._block = Block(TopicSlots(), rows_max=SPARK_BATCH_ROWS, bytes_max=SPARK_BATCH_BYTES)
        self._errors: list[dict[str, Any]] = []
        self._offset = 0

    @property
    def full(self) -> bool:
        """Whether there are so many errors that they must be flushed."""
        return len(self._errors) >= CAPTURE_ERRORS_MAX

    def add_batch(self, role: Role) -> Iterator[pa.RecordBatch]:
        """Add the scanned messages; yield batches that were flushed to make room."""
        batch = self.context.batch
        row = 0
        while row < len(batch):
            row += self._block.append(
                batch,
                self.context.topics,
                row,
                role.sender.encode(),
                durability=Durability.MEMORY,
            )
            if row < len(batch):
                yield from self.flush()

    def add(self, record: Captured) -> bool:
        """Add a message; return False if there is no room before the next `flush`."""
        return self._block.append_record(
            protocol=0 if self.protocol is None else self.protocol.number,
            kind=record.kind,
            topic=record.topic.encode(),
            value=record.value,
            sender=record.sender.encode(),
            client=0,
            timestamp_us=record.timestamp_us,
            headers=record.headers,
            correlation=None if record.correlation is None else record.correlation.encode(),
            status=record.status,
            created_us=record.created_us,
        )

    def error(self, position: int, length: int, code: str, text: str) -> None:
        """Add an error about `length` bytes at `position` of the file."""
        self._errors.append(
            {
                "partition": 0,
                "offset": self._offset + len(self._block),
                "protocol": None if self.protocol is None else self.protocol.label,
                "position": position,
                "length": length,
                "error_code": str(code),
                "error": text,
                **self._where,
            }
        )

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield all collected rows."""
        if len(self._block):
            yield self._records()
            self._offset += len(self._block)
            self._block.clear()
        if self._errors:
            yield pa.RecordBatch.from_pylist(self._errors, schema=DECODED_SCHEMA)
            self._errors.clear()

    @property
    def _where(self) -> Mapping[str, str | None]:
        capture = self._capture
        return {
            "file": capture.file,
            "connection": capture.connection,
            "direction": capture.direction,
        }

    def _records(self) -> pa.RecordBatch:
        columns = Columns(*self._block.finish(self._offset, log_id=0, partition=0))
        row_group = encode_row_group(columns, previous=0, synced=0)
        with pa.ipc.open_stream(b"".join((_HEAD, *row_group.buffers, END_OF_STREAM))) as reader:
            batch = reader.read_next_batch()
        found: dict[str, pa.Array] = {
            field.name: column.dictionary_decode()
            if pa.types.is_dictionary(column.type)
            else column
            for field, column in zip(RECORD_SCHEMA, batch.columns[:RECORD_COLUMNS], strict=True)
        }
        # Only deliveries carry the broker's time and id.
        micros = found["timestamp"].cast(pa.int64())
        timed = pc.not_equal(micros, 0)
        found["timestamp"] = pc.if_else(timed, found["timestamp"], None)
        found["timestampType"] = pc.if_else(
            timed, found["timestampType"], pa.scalar(_NO_TIMESTAMP, pa.int32())
        )
        found["message_id"] = pa.nulls(len(batch), pa.utf8())
        for name, value in self._where.items():
            found[name] = pa.repeat(pa.scalar(value, pa.utf8()), len(batch))
        columns_found = [
            found[field.name] if field.name in found else pa.nulls(len(batch), field.type)
            for field in DECODED_SCHEMA
        ]
        return pa.RecordBatch.from_arrays(columns_found, schema=DECODED_SCHEMA)


# --- Bytes ------------------------------------------------------------------------------------


def _detected(capture: Capture, own: bytes) -> Detected | None:
    """Return the protocol, None if the file ends too early; raise UnrecognisedProtocol."""
    if capture.protocol == AUTO:
        return conclude(_of_client(capture, own))
    protocol = PROTOCOLS[capture.protocol or ""]
    return Detected(protocol, reading_of(protocol).order(_of_client(capture, own), own))


def _of_client(capture: Capture, own: bytes) -> bytes:
    """Return the client's first bytes: only they identify a protocol."""
    if capture.from_client:
        return own
    try:
        return _first_bytes(capture.other_side, DETECT_BYTES_MAX)
    except CannotReadCapture:
        return own  # herald is recognised on either side


def _first_bytes(path: str, length: int) -> bytes:
    return b"".join(capture_pieces(path, min(length, DETECT_BYTES_MAX)))


def capture_pieces(path: str, length: int) -> Iterator[bytes]:
    """Yield the first `length` bytes of a file, piece by piece; raise CannotReadCapture."""
    try:
        file_system, name = _located(path)
        with file_system.open_input_stream(name, compression=None) as stream:
            while length > 0:
                piece: bytes = stream.read(min(CAPTURE_READ_BYTES, length))
                if not piece:
                    return
                length -= len(piece)
                yield piece
    except (OSError, pa.ArrowException) as error:
        raise CannotReadCapture(path, str(error)) from error


def _located(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a Spark path, and the path in it."""
    if path.startswith("file:"):
        return fs.LocalFileSystem(), "/" + path.removeprefix("file:").lstrip("/")
    if "://" not in path:
        return fs.LocalFileSystem(), path
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    return found

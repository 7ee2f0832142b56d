"""Captures come back as what was sent: messages as records, and what is wrong with its position."""

from __future__ import annotations

import datetime as dt
import random
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from penstock.errors import WireError
from penstock.spark import capture_files
from penstock.spark.capture_files import (
    DECODED_SCHEMA,
    CannotReadCapture,
    Capture,
    decode_capture,
)
from penstock.spark.capture_packets import decode_packet_file
from penstock.spark.capture_roles import CaptureContext
from penstock.spark.captures import (
    DECODED,
    capture_errors,
    capture_records,
    decode_captures,
    read_captures,
)
from penstock.spark.errors import InvalidOption
from penstock.spark.schema import RECORD, arrow_schema
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.decoder import Decoder, Rejected
from tests.support import fleximq_bytes, herald_bytes, lamamq_bytes, rheos_bytes
from tests.unit.decode import packet_bytes

CREATED = 1_700_000_000
ORDERS = {"little": "<", "big": ">"}


class Said(NamedTuple):
    """A message as it must come back."""

    topic: str
    value: bytes
    sender: str
    kind: str = "publish"
    headers: tuple[tuple[str, bytes], ...] = ()
    correlation: str | None = None
    status: int | None = None
    created: int | None = None
    timestamp: int | None = None


class Stream(NamedTuple):
    """Frames of one side: the bytes of each, and the message or the error that it must be."""

    protocol: str
    direction: str
    frames: list[tuple[bytes, Said | str | None]]

    @property
    def data(self) -> bytes:
        return b"".join(frame for frame, _ in self.frames)

    @property
    def said(self) -> list[Said]:
        return [what for _, what in self.frames if isinstance(what, Said)]

    @property
    def errors(self) -> list[tuple[int, int, str]]:
        found, position = [], 0
        for frame, what in self.frames:
            if isinstance(what, str):
                found.append((position, len(frame), what))
            position += len(frame)
        return found


# --- What the five protocols send -----------------------------------------------------------------


def rheos_client(version: int) -> Stream:
    rheos = rheos_bytes.Rheos(version)
    alice, bob = (str(uuid.UUID(bytes=each)) for each in (rheos_bytes.ALICE, rheos_bytes.BOB))
    frames: list[tuple[bytes, Said | str | None]] = [
        (rheos.request(rheos_bytes.CREATE, b"plant/a"), None),
    ]
    for number in range(40):
        value = b"%d" % number * (number % 5)
        client, sender = (rheos_bytes.BOB, bob) if number % 3 else (rheos_bytes.ALICE, alice)
        frame = rheos.request(rheos_bytes.PUBLISH, b"plant/a", value, client=client)
        frames.append((frame, Said("plant/a", value, sender)))
        if number % 10 == 5:
            frames.append((rheos.request(rheos_bytes.SUBSCRIBE, b"plant/#"), None))
            wrong = rheos.request(rheos_bytes.INVALID_OPERATION, b"plant/a", b"x")
            frames.append((wrong, "rheos-invalid-operation"))
    frames.append(
        (rheos.request(rheos_bytes.PUBLISH, b"\xff\x01", b"v"), Said("%FF\x01", b"v", alice))
    )
    # A name that nothing can be published under is shown as it was sent.
    frames.append(
        (rheos.request(rheos_bytes.PUBLISH, b"plant/+", b"v"), Said("plant/+", b"v", alice))
    )
    short = "rheos-corrupted-topic" if version == 1 else "rheos-corrupted-data"
    frames.append((rheos.packet(rheos_bytes.PUBLISH, b"\1"), short))
    return Stream(f"rheos{version}", "c2s", frames)


def rheos_broker(version: int) -> Stream:
    rheos = rheos_bytes.Rheos(version)
    bob = str(uuid.UUID(bytes=rheos_bytes.BOB))
    if version == 1:
        ack = b"\xac" + bytes(16) + b"\0"
        wrong = b"\xac" + bytes(16) + b"\7"
        delivery = struct.pack("<BI16s", 0x15, 3, rheos_bytes.BOB) + b"abc"
        said = Said("", b"abc", bob)
    else:
        body = b"\xac\0" + bytes(16)
        ack = body + struct.pack("<I", rheos_bytes.zlib.crc32(body))
        bad = b"\xac\7" + bytes(16)
        wrong = bad + struct.pack("<I", rheos_bytes.zlib.crc32(bad))
        delivery = rheos.request(rheos_bytes.PUBLISH, b"t", b"abc", client=rheos_bytes.BOB)
        said = Said("t", b"abc", bob)
    frames: list[tuple[bytes, Said | str | None]] = [
        (ack, None), (delivery, said), (delivery, said), (ack, None),
        (wrong, "rheos-corrupted-data"), (delivery, said),
    ]  # fmt: skip
    return Stream(f"rheos{version}", "s2c", frames)


def herald_client(order: str) -> Stream:
    mark = ORDERS[order]
    frames: list[tuple[bytes, Said | str | None]] = [
        (herald_bytes.handshake_pub(7, b"pump", order=mark), None),
    ]
    for number in range(30):
        value = b"%d" % number * (number % 4)
        frame = herald_bytes.publish(number % 9, value, order=mark)
        frames.append((frame, Said(f"channel/{number % 9}", value, "pump")))
        if number % 10 == 4:
            frames.append((herald_bytes.frame(0x20, order=mark), None))
            frames.append((herald_bytes.frame(0x77, b"x", order=mark), "herald-invalid-opcode"))
            frames.append((herald_bytes.frame(0x10, order=mark), "herald-malformed-message"))
    message = herald_bytes.frame(0x13, struct.pack(f"{mark}BQ", 7, 1) + b"v", order=mark)
    frames.append((message, "out-of-sequence"))
    return Stream("herald", "c2s", frames)


def herald_broker(order: str) -> Stream:
    mark = ORDERS[order]

    def delivery(time_us: int) -> bytes:
        body = struct.pack(f"{mark}BQ", 7, time_us) + b"v"
        return herald_bytes.frame(0x13, body, order=mark)

    frames: list[tuple[bytes, Said | str | None]] = [
        (herald_bytes.frame(0x03, struct.pack(f"{mark}BQ", 0, 5), order=mark), None),
        (delivery(CREATED * 10**6), Said("channel/7", b"v", "", timestamp=CREATED)),
        (delivery(2**64 - 1), Said("channel/7", b"v", "")),
        (herald_bytes.publish(7, b"v", order=mark), "out-of-sequence"),
        (herald_bytes.error(0x04, order=mark), None),
    ]
    return Stream("herald", "s2c", frames)


def fleximq_client() -> Stream:
    pack, frame = fleximq_bytes.pack, fleximq_bytes.frame
    frames: list[tuple[bytes, Said | str | None]] = [(frame(fleximq_bytes.JOIN, 0), None)]
    for number in range(30):
        value = b"%d" % number
        header = fleximq_bytes.topic("plant/b")
        said = Said("plant/b", value, "1001")
        if number % 2:
            header |= fleximq_bytes.status(202)
            said = said._replace(status=202)
        frames.append((frame(fleximq_bytes.PUB, 1001, header, pack(value)), said))
    to = (("to", b"1002"), ("path", b"/x"))
    routed = fleximq_bytes.routing((1002, "/x"))
    asked = routed | fleximq_bytes.request("id-1")
    answer = routed | fleximq_bytes.correlation("id-2") | fleximq_bytes.status(404)
    frames += [
        (frame(fleximq_bytes.REQ, 1001, asked, pack("q")),
         Said("", b"q", "1001", "request", to, "id-1")),
        (frame(fleximq_bytes.REP, 1001, answer), Said("", b"", "1001", "reply", to, "id-2", 404)),
        (frame(fleximq_bytes.NOTIF, 1001, routed, pack(5)), Said("", b"\5", "1001", "notify", to)),
        (frame(fleximq_bytes.BCAST, 1001, b"", pack(b"all")), Said("", b"all", "1001", "broadcast")),
        (frame(fleximq_bytes.PUB, 1001, routed | fleximq_bytes.topic("t"), pack("r")),
         Said("t", b"r", "1001", headers=to)),
        (frame(fleximq_bytes.PUB, 1001, b"", pack("r")), "fleximq-bad-header"),
        (frame(fleximq_bytes.PUB, 0, fleximq_bytes.topic("t"), b""), "fleximq-bad-client-id"),
        (frame(77, 1001), "fleximq-unknown-type"),
        (frame(fleximq_bytes.PUB, 1001, fleximq_bytes.topic("t"), b"\xc1"), "fleximq-bad-payload"),
        (frame(fleximq_bytes.PING, 1001, fleximq_bytes.keepalive(1)), None),
    ]  # fmt: skip
    return Stream("fleximq", "c2s", frames)


def fleximq_broker() -> Stream:
    pack, frame = fleximq_bytes.pack, fleximq_bytes.frame
    frames: list[tuple[bytes, Said | str | None]] = [
        (frame(fleximq_bytes.REP, 1001, fleximq_bytes.status(200)), None),
    ]
    for number in range(20):
        sender = 1002 + number // 3 % 2
        header = fleximq_bytes.topic("plant/b")
        delivered = frame(fleximq_bytes.PUB, sender, header, pack(number))
        frames.append((delivered, Said("plant/b", pack(number), str(sender))))
    return Stream("fleximq", "s2c", frames)


def lamamq_client(order: str, key: bytes | None) -> Stream:
    mark = ORDERS[order]
    headers = ((b"unit", b"\xffC"), (b"b", b""))
    frames: list[tuple[bytes, Said | str | None]] = [
        (lamamq_bytes.authentication(b"meter", key, order=mark), None),
        (lamamq_bytes.CHOICE, None),
    ]
    for number in range(30):
        value = b"%d" % number
        said = Said("plant.c", value, "meter", created=CREATED)
        more: dict[str, Any] = {}
        if number % 3 == 1:
            more, said = (
                {"headers": headers},
                said._replace(headers=(("unit", b"\xffC"), ("b", b""))),
            )
        if number % 3 == 2:
            more, said = {"kind": lamamq_bytes.EMPTY}, said._replace(value=b"")
        # Before a hook is registered, an id of any size is a push's.
        identifier = number + (lamamq_bytes.BROKER_BIT if number % 2 else 0)
        frame = lamamq_bytes.push(identifier, b"plant.c", value, order=mark, **more)
        frames.append((frame, said))
    frames += [
        (lamamq_bytes.subscribe(40, b"plant.#", order=mark), None),
        (lamamq_bytes.forward(41, b"t", b"v", order=mark), "out-of-sequence"),
        (lamamq_bytes.push(42, b"\xff", b"v", order=mark), "lamamq-bad-request"),
        (lamamq_bytes.register(43, b"h", lamamq_bytes.PUSHED, order=mark), None),
        (lamamq_bytes.answer(lamamq_bytes.BROKER_BIT + 1, order=mark), None),
        (lamamq_bytes.push(44, b"t", b"v", order=mark), Said("t", b"v", "meter", created=CREATED)),
        (lamamq_bytes.answer(lamamq_bytes.BROKER_BIT + 2, 4, b"no", order=mark), None),
    ]
    return Stream("lamamq", "c2s", frames)


def lamamq_broker(order: str) -> Stream:
    mark = ORDERS[order]
    first = lamamq_bytes.BROKER_BIT
    said = Said("t", b"v", "", created=CREATED)
    frames: list[tuple[bytes, Said | str | None]] = [
        (lamamq_bytes.OFFER, None),
        (lamamq_bytes.answer(1, order=mark), None),
        (lamamq_bytes.forward(first, b"t", b"v", order=mark), said),
        (lamamq_bytes.answer(2, 2, b"no", order=mark), None),
        (lamamq_bytes.answer(3, 99, b"?", order=mark), "lamamq-bad-request"),
        (lamamq_bytes.forward(first + 1, b"t", b"v", order=mark), said),
    ]
    return Stream("lamamq", "s2c", frames)


CLIENTS = {
    "rheos1": rheos_client(1),
    "rheos2": rheos_client(2),
    "fleximq": fleximq_client(),
    "herald-little": herald_client("little"),
    "herald-big": herald_client("big"),
    "lamamq-little": lamamq_client("little", None),
    "lamamq-big": lamamq_client("big", None),
    "lamamq-little-key": lamamq_client("little", b"secret"),
    "lamamq-big-key": lamamq_client("big", b"secret"),
}
BROKERS = {
    "rheos1": rheos_broker(1),
    "rheos2": rheos_broker(2),
    "fleximq": fleximq_broker(),
    "herald-little": herald_broker("little"),
    "herald-big": herald_broker("big"),
    "lamamq-little": lamamq_broker("little"),
    "lamamq-big": lamamq_broker("big"),
}


# --- Decoding without Spark -----------------------------------------------------------------------


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = pa.Table.from_batches(list(batches), schema=DECODED_SCHEMA).to_pylist()
    return sorted(found, key=lambda row: (row["file"], row["offset"], row["position"] is None))


def said_by(rows: list[dict[str, Any]]) -> list[Said]:
    return [
        Said(
            row["topic"],
            row["value"],
            row["sender"],
            row["kind"],
            tuple((entry["key"], entry["value"]) for entry in row["headers"] or ()),
            row["correlation"],
            row["status"],
            row["created"] and int(row["created"].replace(tzinfo=dt.UTC).timestamp()),
            row["timestamp"] and int(row["timestamp"].replace(tzinfo=dt.UTC).timestamp()),
        )
        for row in rows
        if row["error_code"] is None
    ]


def errors_by(rows: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return [
        (row["position"], row["length"], row["error_code"]) for row in rows if row["error_code"]
    ]


def capture(folder: Path, name: str, data: bytes) -> Capture:
    path = folder / name
    path.write_bytes(data)
    connection, protocol, direction, _ = name.rsplit(".", 3)
    return Capture(str(path), connection, protocol, direction, len(data))


def decoded(folder: Path, name: str, data: bytes) -> list[dict[str, Any]]:
    return rows_of(decode_capture(capture(folder, name, data), CaptureContext()))


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("spelled", ["own", "auto"])
def test_what_clients_sent_comes_back(tmp_path: Path, name: str, spelled: str) -> None:
    stream = CLIENTS[name]
    protocol = stream.protocol if spelled == "own" else "auto"
    rows = decoded(tmp_path, f"a.b.{protocol}.c2s.bin", stream.data)
    assert said_by(rows) == stream.said
    assert errors_by(rows) == stream.errors
    records = [row for row in rows if row["error_code"] is None]
    assert [row["offset"] for row in records] == list(range(len(stream.said)))
    assert {row["protocol"] for row in rows} == {stream.protocol}
    assert {row["connection"] for row in rows} == {"a.b"}
    assert all(row["message_id"] is None and row["position"] is None for row in records)
    assert {(row["timestamp"], row["timestampType"]) for row in records} == {(None, -1)}


@pytest.mark.parametrize("name", BROKERS)
@pytest.mark.parametrize("spelled", ["own", "auto"])
def test_what_brokers_sent_comes_back(tmp_path: Path, name: str, spelled: str) -> None:
    stream, client = BROKERS[name], CLIENTS[name]
    protocol = stream.protocol if spelled == "own" else "auto"
    capture(tmp_path, f"a.{protocol}.c2s.bin", client.data)  # it tells protocol and byte order
    rows = decoded(tmp_path, f"a.{protocol}.s2c.bin", stream.data)
    assert said_by(rows) == stream.said
    assert errors_by(rows) == stream.errors
    assert {row["timestampType"] for row in rows if row["timestamp"]} <= {1}


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("name", CLIENTS)
def test_rows_do_not_depend_on_the_pieces_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    stream = CLIENTS[name]
    monkeypatch.setattr(capture_files, "CAPTURE_READ_BYTES", size)
    rows = decoded(tmp_path, f"a.{stream.protocol}.c2s.bin", stream.data)
    assert said_by(rows) == stream.said
    assert errors_by(rows) == stream.errors


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", CLIENTS)
def test_rows_do_not_depend_on_the_batches_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    stream = CLIENTS[name]
    monkeypatch.setattr(capture_files, "SPARK_BATCH_ROWS", size)
    rows = decoded(tmp_path, f"a.{stream.protocol}.c2s.bin", stream.data)
    assert said_by(rows) == stream.said
    assert errors_by(rows) == stream.errors


def test_a_full_table_of_topics_changes_nothing(tmp_path: Path) -> None:
    stream = CLIENTS["rheos2"]
    context = CaptureContext(topics_max=256)  # herald's channels fill it
    found = capture(tmp_path, "a.auto.c2s.bin", stream.data)
    assert said_by(rows_of(decode_capture(found, context))) == stream.said


def test_channels_have_the_names_they_are_given(tmp_path: Path) -> None:
    data = herald_bytes.publish(7, b"x") + herald_bytes.publish(8, b"y")
    found = capture(tmp_path, "a.herald.c2s.bin", data)
    rows = rows_of(decode_capture(found, CaptureContext({7: "alarms"})))
    assert [row["topic"] for row in rows] == ["alarms", "channel/8"]


# --- What is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLIENTS)
def test_a_frame_that_is_cut_has_its_position(tmp_path: Path, name: str) -> None:
    stream = CLIENTS[name]
    last = len(stream.frames[-1][0])
    whole = len(stream.data) - last
    for missing in (1, last - 1):
        rows = decoded(tmp_path, f"a.{stream.protocol}.c2s.bin", stream.data[:-missing])
        assert errors_by(rows)[-1] == (whole, last - missing, "cut-short")
        assert len(said_by(rows)) in {len(stream.said), len(stream.said) - 1}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("rheos1", "bad-magic"),
        ("rheos2", "bad-magic"),
        ("fleximq", "fleximq-unsupported-version"),
        ("herald-little", "bad-magic"),
        ("herald-big", "bad-magic"),
    ],
)
def test_where_framing_is_lost_one_error_stands_for_the_rest(
    tmp_path: Path, name: str, code: str
) -> None:
    stream = CLIENTS[name]
    frames = [frame for frame, _ in stream.frames]
    sound = b"".join(frames[:20])
    data = sound + b"\x99" + b"".join(frames[20:])
    rows = decoded(tmp_path, f"a.{stream.protocol}.c2s.bin", data)
    assert errors_by(rows)[-1] == (len(sound), len(data) - len(sound), code)
    before = [what for _, what in stream.frames[:20] if isinstance(what, Said)]
    assert said_by(rows) == before


def test_a_flipped_bit_is_found_by_the_checksum(tmp_path: Path) -> None:
    stream = CLIENTS["rheos2"]
    first = stream.frames[0][0]
    data = bytearray(stream.data)
    data[len(first) + 30] ^= 1
    rows = decoded(tmp_path, "a.rheos2.c2s.bin", bytes(data))
    assert errors_by(rows) == [(len(first), len(data) - len(first), "rheos-corrupted-data")]
    assert said_by(rows) == []


def test_bytes_of_no_protocol_are_an_error(tmp_path: Path) -> None:
    rows = decoded(tmp_path, "a.auto.c2s.bin", b"GET / HTTP/1.1\r\n")
    assert errors_by(rows) == [(0, 16, "unrecognised-protocol")]
    assert rows[0]["protocol"] is None
    # What a broker sent does not tell by itself: an offer of versions begins like a fleximq client.
    rows = decoded(tmp_path, "b.auto.s2c.bin", BROKERS["lamamq-big"].data)
    assert errors_by(rows)
    assert errors_by(decoded(tmp_path, "c.auto.c2s.bin", b"\xfe")) == [(0, 1, "cut-short")]
    assert decoded(tmp_path, "d.auto.c2s.bin", b"") == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    gone = Capture(str(tmp_path / "gone.auto.c2s.bin"), "gone", "auto", "c2s", 5)
    with pytest.raises(CannotReadCapture, match=r"gone\.auto\.c2s\.bin"):
        list(decode_capture(gone, CaptureContext()))


def test_bytes_that_came_since_are_not_looked_at(tmp_path: Path) -> None:
    stream = CLIENTS["herald-little"]
    found = capture(tmp_path, "a.herald.c2s.bin", stream.data)
    with Path(found.file).open("ab") as file:
        file.write(herald_bytes.publish(7, b"later"))
    assert said_by(rows_of(decode_capture(found, CaptureContext()))) == stream.said


# --- The same as the plain codecs, whatever the bytes ---------------------------------------------

DECODERS = {
    "rheos1": rheos1.BrokerDecoder,
    "rheos2": rheos2.BrokerDecoder,
    "fleximq": fleximq.BrokerDecoder,
    "herald-little": lambda: herald.Decoder(order="little"),
    "herald-big": lambda: herald.Decoder(order="big"),
    "lamamq-little-key": lambda: lamamq.BrokerDecoder(order="little", key_required=True),
    "lamamq-big-key": lambda: lamamq.BrokerDecoder(order="big", key_required=True),
}


def value_of(packet: Any) -> bytes | None:
    match packet:
        case rheos1.Request(_, 2, _, value) | rheos2.Event(_, 2, _, value):
            return value
        case herald.Publish(_, value):
            return value
        case lamamq.Push(_, message):
            return message.payload
        case fleximq.Message(kind) if kind in {1, 3, 4, 5} or (
            kind == 2 and packet.header.routing is not None
        ):
            return fleximq.raw_value(packet.payload)
    return None


def by_plain_codec(decoder: Decoder[Any], data: bytes) -> tuple[list[bytes], list[tuple[int, str]]]:
    values, errors, position = [], [], 0
    while position < len(data):
        try:
            step = decoder.decode_at(data, position)
        except WireError as error:
            return values, [*errors, (position, str(error.code))]
        if step is None:
            return values, [*errors, (position, "cut-short")]
        packet, end = step
        if isinstance(packet, Rejected):
            errors.append((position, str(packet.error.code)))
        else:
            value = value_of(packet)
            if value is not None:
                values.append(value)
        position = end
    return values, errors


@pytest.mark.parametrize("name", DECODERS)
def test_damaged_captures_are_read_as_the_plain_codecs_read_them(tmp_path: Path, name: str) -> None:
    dice = random.Random(name)
    # Without what depends on a role: the plain codecs do not judge who sends what.
    frames = [
        frame
        for frame, what in CLIENTS[name].frames
        if what != "out-of-sequence" and not (name.startswith("lama") and what is None)
    ]
    if name.startswith("lama"):
        frames[:0] = [frame for frame, _ in CLIENTS[name].frames[:2]]
    sound = b"".join(frames)
    for _ in range(60):
        data = bytearray(sound)
        for _ in range(dice.choice((1, 1, 3))):
            # The handshake of LamaMQ is whole: where its key is told by what follows.
            first = len(frames[0]) + 2 if name.startswith("lama") else 0
            data[dice.randrange(first, len(data))] = dice.randrange(256)
        del data[dice.randrange(len(data) // 2, len(data)) :]
        values, errors = by_plain_codec(DECODERS[name](), bytes(data))
        protocol = CLIENTS[name].protocol
        if protocol == "herald" and data[:2] not in (b"\xca\xfe", b"\xfe\xca"):
            continue  # then nothing tells the byte order
        rows = decoded(tmp_path, f"a.{protocol}.c2s.bin", bytes(data))
        found = [(position, code) for position, _, code in errors_by(rows)]
        assert [error for error in found if error[1] != "out-of-sequence"] == errors
        assert [said.value for said in said_by(rows)] == values


# --- On Spark -------------------------------------------------------------------------------------


def test_the_columns_are_those_that_spark_takes() -> None:
    assert arrow_schema(DECODED).equals(DECODED_SCHEMA)


def packets(name: str) -> bytes:
    """A file of the packets of a client and a broker."""
    client, broker = CLIENTS.get(name), BROKERS.get(name)
    return packet_bytes.pcap(
        packet_bytes.session(client.data if client else b"", broker.data if broker else b"")
    )


def of_packets(path: Path) -> list[dict[str, Any]]:
    capture = Capture(str(path), None, None, None, path.stat().st_size)
    return rows_of(decode_packet_file(capture, CaptureContext()))


@pytest.mark.parametrize("name", sorted(CLIENTS.keys() | BROKERS.keys()))
def test_packets_are_decoded_as_the_bytes_of_both_sides(tmp_path: Path, name: str) -> None:
    file = tmp_path / "some.pcap"
    file.write_bytes(packets(name))
    found = of_packets(file)
    for direction, streams in (("c2s", CLIENTS), ("s2c", BROKERS)):
        own = [row for row in found if row["direction"] == direction]
        said = streams[name].said if name in streams else []
        assert [row["value"] for row in own if not row["error_code"]] == [s.value for s in said]
        assert [row["topic"] for row in own if not row["error_code"]] == [s.topic for s in said]
        errors = streams[name].errors if name in streams else []
        assert [
            (row["position"], row["length"], row["error_code"]) for row in own if row["error_code"]
        ] == errors
    assert {row["connection"] for row in found} == {"127.0.0.1:5000 → 127.0.0.1:7000"}


def test_packets_that_cannot_be_decoded_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "some.pcapng"
    client = (packet_bytes.CLIENT, packet_bytes.SERVER)
    publish = herald_bytes.handshake_pub() + herald_bytes.publish(1, b"x")
    for data, code, text in (
        (b"no packets", "packet-file", "neither pcap nor pcapng"),
        (packet_bytes.pcap([]), "packet-file", "no TCP connection"),
        (packet_bytes.pcap([packet_bytes.tcp(*client, 1, b"GET / HTTP")]), "unrec", "HTTP"),
        (
            packet_bytes.pcap(
                [packet_bytes.tcp(*client, 1, publish), packet_bytes.tcp(*client, 900, publish)]
            ),
            "cut-short",
            "lacks",
        ),
    ):
        file.write_bytes(data)
        *records, error = of_packets(file)
        assert error["error_code"].startswith(code)
        assert text in error["error"]
        assert len(records) == (code == "cut-short")


def test_a_channel_must_be_one_and_have_its_own_topic(spark: SparkSession, tmp_path: Path) -> None:
    captures = read_captures(spark, str(tmp_path))
    for channels in ({256: "a"}, {1: "a", 2: "a"}, {1: "channel/2"}, {1: ""}):
        with pytest.raises(InvalidOption, match="channels"):
            decode_captures(captures, channels=channels)
    assert decode_captures(captures).count() == 0


def test_a_folder_of_captures_becomes_a_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a folder 100%" / "day=1"
    folder.mkdir(parents=True)
    for name, stream in CLIENTS.items():
        (folder / f"{name}.auto.c2s.bin").write_bytes(stream.data)
    for name, stream in BROKERS.items():
        (folder / f"{name}.auto.s2c.bin").write_bytes(stream.data)
    many = b"".join(herald_bytes.publish(each % 200, b"%07d" % each) for each in range(150_000))
    (folder / "many.herald.c2s.bin").write_bytes(herald_bytes.handshake_pub() + many + b"\xfe")
    (folder / "unnamed.bin").write_bytes(b"???")
    (folder / "packets.pcap").write_bytes(packets("herald-little"))
    (folder / "README.md").write_text("not a capture")

    listed = read_captures(spark, str(tmp_path / "a folder 100%"))
    rows = decode_captures(listed, channels={7: "alarms"}).cache()
    records, errors = capture_records(rows), capture_errors(rows)
    assert records.columns[:15] == RECORD.fieldNames()

    total = records.where("connection = 'many'").agg(
        functions.count("*"),
        functions.sum(functions.expr("cast(string(value) as long)")),
        functions.max("offset"),
        functions.countDistinct("topic"),
        functions.count_if(functions.col("topic") == "alarms"),
    )
    assert tuple(total.first() or ()) == (150_000, sum(range(150_000)), 149_999, 200, 750)

    values: dict[tuple[str, str], list[bytes]] = {}
    captured = records.where("file like '%.pcap'").select("connection", "value").collect()
    expected = [said.value for each in (CLIENTS, BROKERS) for said in each["herald-little"].said]
    assert sorted(bytes(row["value"]) for row in captured) == sorted(expected)
    assert {row["connection"] for row in captured} == {"127.0.0.1:5000 → 127.0.0.1:7000"}
    files, errors = records.where("file like '%.bin'"), errors.where("file like '%.bin'")
    for row in files.where("connection != 'many'").orderBy("offset").collect():
        values.setdefault((row["connection"], row["direction"]), []).append(bytes(row["value"]))
    streams = [(name, "c2s", stream) for name, stream in CLIENTS.items()]
    streams += [(name, "s2c", stream) for name, stream in BROKERS.items()]
    assert values == {
        (name, direction): [said.value for said in stream.said]
        for name, direction, stream in streams
    }

    unnamed, *named = sorted(
        (row["connection"] or "", row["direction"], row["position"], row["length"],
         row["error_code"], row["error"])
        for row in errors.collect()
    )  # fmt: skip
    cut = len(herald_bytes.handshake_pub()) + len(many)
    assert [each[:5] for each in named] == sorted(
        [
            *((name, direction, *each) for name, direction, stream in streams for each in stream.errors),
            ("many", "c2s", cut, 1, "cut-short"),
        ]
    )  # fmt: skip
    assert unnamed[3:5] == (3, "capture-name")
    assert "unnamed.bin" in unnamed[5]
    rows.unpersist()

"""The gate of the Flight front: sizes are judged by their announcement, however bytes are cut."""

import struct

import pyarrow as pa
import pytest

from penstock.limits import (
    FLIGHT_FIRST_BYTES_MAX,
    FLIGHT_FIRST_STREAMS_MAX,
    FLIGHT_MESSAGE_BYTES_MAX,
    FLIGHT_STREAMS_MAX,
)
from penstock.server.flight.flight_data import FlightDataScan, check_ipc_header
from penstock.server.flight.http2 import (
    PREFACE,
    FrameCounter,
    NotHttp2,
    RequestGate,
    TooLarge,
    failure_frames,
)

ROOM = FLIGHT_MESSAGE_BYTES_MAX


def frame(kind: int, payload: bytes = b"", *, stream: int = 1, flags: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def message(size: int, *, compressed: int = 0) -> bytes:
    """The prefix and the data of a message that has one field, which nobody reads."""
    length = size - 4
    field = b"\x0a" + bytes((length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14))
    return struct.pack(">BI", compressed, size) + field + bytes(length)


def gate(*, trusted: bool = True) -> RequestGate:
    found = RequestGate()
    found.trusted = trusted
    return found


CALL = PREFACE + frame(4, bytes(6), stream=0) + frame(1, b"\x88", flags=4)
STREAM = (
    CALL
    + frame(0, message(300)[:100])
    + frame(6, bytes(8), stream=0)
    + frame(0, message(300)[100:] + message(40))
)


def test_bytes_pass_however_they_are_cut() -> None:
    for cut in range(len(STREAM) + 1):
        found = gate()
        assert found.feed(memoryview(STREAM[:cut]), ROOM) == cut
        assert found.feed(memoryview(STREAM[cut:]), ROOM) == len(STREAM) - cut
        assert (found.unfinished, found.streams) == (0, 1)
    found = gate()
    for place in range(len(STREAM)):
        assert found.feed(memoryview(STREAM[place : place + 1]), ROOM) == 1


@pytest.mark.parametrize("cut", range(len(CALL), len(CALL) + 14))
def test_a_message_above_the_limit_is_refused_at_its_announcement(cut: int) -> None:
    data = CALL + frame(0, struct.pack(">BI", 0, FLIGHT_MESSAGE_BYTES_MAX + 1) + b"x")
    found = gate()
    found.feed(memoryview(data[:cut]), ROOM)
    with pytest.raises(TooLarge, match="allowed are") as caught:
        found.feed(memoryview(data[cut:]), ROOM)
    assert caught.value.stream == 1
    assert found.unfinished == 0


def test_a_compressed_message_is_refused() -> None:
    with pytest.raises(TooLarge, match="compressed messages"):
        gate().feed(memoryview(CALL + frame(0, message(40, compressed=1))), ROOM)


def test_before_authentication_a_large_message_waits_at_its_announcement() -> None:
    size = FLIGHT_FIRST_BYTES_MAX + 1
    data = CALL + frame(0, struct.pack(">BI", 0, size))
    for cut in range(len(data)):
        found = gate(trusted=False)
        passed = found.feed(memoryview(data[:cut]), ROOM)
        assert passed == cut
        passed += found.feed(memoryview(data[passed:]), ROOM)
        assert passed < len(data)  # its length is not whole: gRPC waits for the rest
        assert found.unfinished == 0
        found.trusted = True
        assert found.feed(memoryview(data[passed:]), ROOM) == len(data) - passed
        assert found.unfinished == size


def test_a_message_waits_for_room() -> None:
    data = CALL + frame(0, message(3000))
    found = gate()
    passed = found.feed(memoryview(data), 2999)
    assert passed == len(data) - 3000 - 5
    assert found.feed(memoryview(data[passed:]), 3000) == 3005


@pytest.mark.parametrize(
    ("trusted", "streams_max"), [(0, FLIGHT_FIRST_STREAMS_MAX), (1, FLIGHT_STREAMS_MAX)]
)
def test_calls_above_the_limit_wait_until_one_ends(trusted: int, streams_max: int) -> None:
    found = gate(trusted=bool(trusted))
    found.feed(memoryview(PREFACE), ROOM)
    for number in range(streams_max):
        found.feed(memoryview(frame(1, b"\x88", stream=2 * number + 1, flags=4)), ROOM)
    one_more = frame(1, b"\x88", stream=2 * streams_max + 1, flags=4)
    assert found.feed(memoryview(one_more), ROOM) == 0
    found.close_stream(1)
    assert found.feed(memoryview(one_more), ROOM) == len(one_more)


def test_a_stream_that_ends_gives_back_what_it_announced() -> None:
    found = gate()
    found.feed(memoryview(CALL + frame(0, message(3000)[:100])), ROOM)
    assert found.unfinished == 3005 - 100
    found.feed(memoryview(frame(3, bytes(4))), ROOM)  # RST_STREAM
    assert (found.unfinished, found.streams) == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        PREFACE + frame(0, b"\0", flags=8),
        PREFACE + frame(1, bytes(70_000)),
        PREFACE + frame(1, bytes(40_000)) + frame(9, bytes(40_000)),
        PREFACE + frame(4, bytes(5000), stream=0),
    ],
)
def test_what_no_grpc_client_sends_is_refused(data: bytes) -> None:
    with pytest.raises(NotHttp2):
        gate().feed(memoryview(data), ROOM)


def test_the_server_s_frames_are_followed_however_they_are_cut() -> None:
    data = frame(1, b"\x88", flags=4) + frame(0, bytes(50)) + frame(1, b"\x88", flags=5, stream=7)
    data += frame(3, bytes(4), stream=9) + frame(0, b"", flags=1, stream=11)
    for cut in range(len(data) + 1):
        counter = FrameCounter()
        assert counter.feed(data[:cut]) + counter.feed(data[cut:]) == [7, 9, 11]
        assert counter.between_frames


def test_a_failure_is_three_frames_that_end_the_call() -> None:
    data = failure_frames(5, status=8, text="100 % ä" + "x" * 200)
    counter = FrameCounter()
    assert counter.feed(data) == [5, 5]
    assert counter.between_frames
    assert b"grpc-status\x018" in data
    assert b"100 %25 %C3%A4xxx" in data


# --- Arrow in messages ----------------------------------------------------------------------------


def header_of(batch: pa.RecordBatch, **options: object) -> memoryview:
    """The header of a record batch's message, as pyarrow writes it."""
    sink = pa.BufferOutputStream()
    chosen = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, batch.schema, options=chosen) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    found = next(each for each in reader if each.type == "record batch")
    return memoryview(found.metadata.to_pybytes())


BATCH = pa.record_batch({"value": pa.array([bytes(1000)] * 10)})


def test_a_compressed_batch_is_found_by_its_header() -> None:
    check_ipc_header(header_of(BATCH))
    for kind in ("lz4", "zstd"):
        with pytest.raises(ValueError, match="compressed record batches"):
            check_ipc_header(header_of(BATCH, compression=kind))


def test_a_header_is_found_in_any_order_of_fields_and_any_cut() -> None:
    header = bytes(header_of(BATCH, compression="zstd"))
    size = bytes((len(header) & 0x7F | 0x80, len(header) >> 7))
    field = b"\x12" + size + header
    other = b"\x0a\x03abc" + b"\xc2\x3e\x02xy" + b"\x1a\x00"
    for data in (field, other + field, field + other, b"\x92\x00" + size + header):
        for cut in range(0, len(data), 7):
            scan = FlightDataScan()
            with pytest.raises(ValueError, match="compressed record batches"):
                [scan.feed(memoryview(part)) for part in (data[:cut], data[cut:])]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"writer":"w"}' * 10, bytes(100), b"\xff" * 64])
def test_what_is_not_arrow_passes(data: bytes) -> None:
    check_ipc_header(memoryview(data))


@pytest.mark.parametrize("data", [b"\x0b", b"\xff" * 12, b"\x80\x80\x80\x00"])
def test_fields_that_protobuf_does_not_have_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not valid"):
        FlightDataScan().feed(memoryview(data))


@pytest.mark.parametrize("kind", [4, 6, 8])
def test_a_frame_without_data_or_headers_is_limited(kind: int) -> None:
    data = frame(kind, bytes(4096), stream=0)
    assert gate().feed(memoryview(CALL + data), ROOM) == len(CALL + data)
    with pytest.raises(NotHttp2, match=f"kind {kind} with 4097 bytes"):
        gate().feed(memoryview(CALL + frame(kind, bytes(4097), stream=0)), ROOM)


@pytest.mark.parametrize(
    ("size", "length"),
    [(126, b"\x7e"), (127, b"\x7f\x00"), (128, b"\x7f\x01"), (300, b"\x7f\xad\x01")],
)
def test_a_failure_is_answered_with_a_status_and_the_end(size: int, length: bytes) -> None:
    # Lengths of RFC 7541, section 5.1, with a prefix of 7 bits.
    block = b"\x88\0\x0ccontent-type\x10application/grpc\0\x0bgrpc-status\x018"
    block += b"\0\x0cgrpc-message" + length + b"x" * size
    expected = frame(1, block, stream=3, flags=5) + frame(3, bytes(4), stream=3)
    expected += frame(7, bytes.fromhex("00000003 0000000b"), stream=0)
    assert failure_frames(3, status=8, text="x" * size) == expected


def test_a_call_that_may_not_begin_waits_with_all_that_follows() -> None:
    allowed = iter((True, False, False, True))
    found = RequestGate(lambda: next(allowed))
    second = frame(1, b"\x88", stream=3, flags=4) + frame(0, message(40), stream=3)
    assert found.feed(memoryview(CALL + second), ROOM) == len(CALL)
    assert found.feed(memoryview(second), ROOM) == 0
    assert found.streams == 1
    assert found.feed(memoryview(second), ROOM) == len(second)
    assert found.streams == 2

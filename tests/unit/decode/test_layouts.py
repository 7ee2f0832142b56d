"""Every field of every frame: all bytes are explained once, and the codec's verdict is kept."""

import random

import pytest

from penstock.decode.findings import Frame, Heading, Trouble, TroubleKind
from penstock.decode.layout import Data, Form, Number, Window, walk
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from tests.unit.decode.golden import STREAMS, Stream, findings

streams = pytest.mark.parametrize("stream", STREAMS, ids=str)


def check_cover(frame: Frame) -> None:
    """The fields cover each byte of a frame exactly once."""
    position = frame.start
    for field in frame.fields:
        assert field.start == position, (frame.name, field)
        position = field.end
    assert position == frame.end, (frame.name, frame.fields)
    joined = b"".join(frame.data[f.start - frame.start : f.end - frame.start] for f in frame.fields)
    assert joined == frame.data


@streams
def test_the_fields_of_every_golden_frame_cover_it_exactly_once(stream: Stream) -> None:
    found = [finding for finding in findings(stream.data, stream) if isinstance(finding, Frame)]
    bad = sum(isinstance(finding, Trouble) for finding in findings(stream.data, stream))
    sizes = [len(frame.data) for frame in found]
    golden = [len(frame) for frame in stream.frames]
    assert sizes == golden[: len(sizes)]
    assert len(sizes) == len(golden) or bad
    for frame in found:
        check_cover(frame)


@streams
def test_a_frame_that_the_codec_takes_has_no_field_with_a_fault(stream: Stream) -> None:
    for finding in findings(stream.data, stream):
        if isinstance(finding, Frame):
            if finding.fault is None:
                assert not [field for field in finding.fields if field.fault], finding
            else:
                assert finding.start <= finding.fault.offset <= finding.end


def test_every_kind_of_frame_is_among_the_golden_ones() -> None:
    names = {
        (stream.protocol, finding.name)
        for stream in STREAMS
        for finding in findings(stream.data, stream)
        if isinstance(finding, Frame)
    }
    wanted = {
        HERALD: "HANDSHAKE_PUB HANDSHAKE_SUB HANDSHAKE_ACK DISCONNECT PUBLISH SUBSCRIBE "
        "UNSUBSCRIBE MESSAGE PING PONG ERROR",
        FLEXIMQ: "JOIN REQ REP NOTIF BCAST PUB SUB UNSUB PING PONG",
    }
    for protocol, kinds in wanted.items():
        assert {(protocol, kind) for kind in kinds.split()} <= names
    for name in ("Push", "Forward"):
        assert (LAMAMQ, f"{name} message") in names
    for name in ("Topic subscribe", "Topic unsubscribe", "Middleware register", "Answer"):
        assert (LAMAMQ, name) in names
    for protocol in (RHEOS1, RHEOS2):
        assert sum(found is protocol for found, _ in names) >= 4


@pytest.mark.parametrize("seed", range(8))
def test_whatever_the_bytes_are_nothing_is_raised_and_all_is_covered(seed: int) -> None:
    source = random.Random(seed)
    for stream in STREAMS:
        for _ in range(40):
            data = bytearray(stream.data)
            for _ in range(source.randrange(1, 4)):
                if data:
                    data[source.randrange(len(data))] = source.randrange(256)
            del data[source.randrange(len(data) + 1) :]
            heading, *found = findings(bytes(data), stream)
            assert isinstance(heading, Heading)
            for finding in found:
                if isinstance(finding, Frame):
                    check_cover(finding)
                    if finding.fault is None:
                        assert not [field for field in finding.fields if field.fault], finding
                    else:
                        assert finding.start <= finding.fault.offset <= finding.end


@streams
def test_frames_do_not_depend_on_where_the_stream_is_cut(stream: Stream) -> None:
    if stream.protocol is LAMAMQ and stream.from_client:
        return  # there the cut behind the name says whether a key follows
    whole = findings(stream.data, stream)
    for cut in range(1, len(stream.data)):
        assert findings(stream.data, stream, cuts=(cut,)) == whole
    cuts = tuple(range(1, len(stream.data)))
    assert findings(stream.data, stream, cuts=cuts) == whole


@streams
def test_a_stream_is_recognised_by_its_own_bytes(stream: Stream) -> None:
    if not stream.data or (stream.protocol is LAMAMQ and stream.frames[0][:4] == bytes(4)):
        return  # a LamaMQ answer with id 0 looks like a client's first bytes
    if stream.protocol is LAMAMQ and not stream.from_client and stream.order == "little":
        return  # an offer has no byte order
    heading, *_ = findings(stream.data)
    assert isinstance(heading, Heading)
    assert (heading.protocol, heading.order) == (stream.protocol.label, stream.order)


@pytest.mark.parametrize("protocol", list(PROTOCOLS), ids=str)
def test_a_frame_that_is_cut_short_is_told(protocol: Protocol) -> None:
    stream = next(s for s in STREAMS if s.protocol is protocol and s.from_client and s.data)
    first = stream.frames[0]
    *_, last = findings(first + stream.frames[1][:-1], stream)
    assert isinstance(last, Trouble)
    assert last.kind is TroubleKind.CUT_SHORT
    assert (last.offset, last.length) == (len(first), len(stream.frames[1]) - 1)


# --- The walk itself ------------------------------------------------------------------------------

LAYOUT = (
    Number("size", 2),
    Window("size", (Number("name size", 1), Data("name", "name size", Form.TEXT))),
    Number("end", 1),
)


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ("0003 02 6162 ff", [("size", 0, ""), ("name size", 2, ""), ("name", 3, ""), ("end", 5, "")]),
        ("0004 02 6162 63 ff", [("size", 0, ""), ("name size", 2, ""), ("name", 3, ""),
                                ("(left over)", 5, "no field"), ("end", 6, "")]),
        ("0003 09 6162 ff", [("size", 0, ""), ("name size", 2, ""), ("name", 3, "9 bytes are"),
                             ("end", 5, "")]),
        ("0003 02 fffe ff", [("size", 0, ""), ("name size", 2, ""), ("name", 3, "not UTF-8"),
                             ("end", 5, "")]),
        ("0009 02 6162", [("size", 0, ""), ("name size", 2, ""), ("name", 3, ""), ("end", 5, "1 byte")]),
        ("00", [("size", 0, "2 bytes are")]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_field_with_a_fault(
    digits: str, expected: list[tuple[str, int, str]]
) -> None:
    data = bytes.fromhex(digits)
    found = walk(LAYOUT, data)
    assert [(field.name, field.start) for field in found] == [row[:2] for row in expected]
    for field, (*_, fault) in zip(found, expected, strict=True):
        assert fault in field.fault
        assert bool(fault) == bool(field.fault)
    assert found[-1].end == len(data)

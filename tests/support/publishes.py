"""Publish frames of every protocol, by the plain encoders, from the same few ingredients."""

from hypothesis import strategies as st

from penstock.model import ByteOrder, binary_topic_name
from penstock.protocols import Protocol
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.rheos import OpCode
from tests.support.agreement import SENDER

UUIDS = [bytes([n]) * 16 for n in (0, 7, 255)]


def publish(
    protocol: Protocol,
    order: ByteOrder,
    *,
    channel: int = 7,
    value: bytes = b"",
    sender: bytes = UUIDS[1],
    headers: tuple[tuple[str, bytes], ...] = (),
    payload: bytes | None = None,
    payload_type: lamamq.PayloadType = lamamq.PayloadType.BUFFER,
    status: int | None = None,
    reserved: bytes = bytes(16),
    topic: str | None = None,
    message_id: int = 1,
) -> bytes:
    """One publish frame; what a protocol has no place for is left out."""
    name = f"channel/{channel}" if topic is None else topic
    match protocol.label:
        case "rheos1":
            request = rheos1.Request(sender, OpCode.PUBLISH, binary_topic_name(name), value)
            return rheos1.encode(request)
        case "rheos2":
            return rheos2.encode(
                rheos2.Event(sender, OpCode.PUBLISH, binary_topic_name(name), value)
            )
        case "fleximq":
            header = fleximq.Header(topic=name, status=status)
            body = fleximq.wrap_value(value) if payload is None else payload
            frame = fleximq.encode(
                fleximq.Message(fleximq.MessageType.PUB, SENDER.number, header, body)
            )
            return frame[:6] + reserved + frame[22:]
        case "herald":
            return herald.encode(herald.Publish(channel, value), order=order)
        case "lamamq":
            content = b"" if payload_type is lamamq.PayloadType.EMPTY else value
            message = lamamq.Message(1_600_000_000, name, headers, payload_type, content)
            return lamamq.encode(lamamq.Push(message_id, message), order=order)


@st.composite
def publishes(draw: st.DrawFn, protocol: Protocol, order: ByteOrder) -> bytes:
    """A publish frame with fields from everywhere in their range, small ones mostly."""
    return publish(
        protocol,
        order,
        channel=draw(st.sampled_from([0, 1, 7, 13, 255])),
        value=draw(st.binary(max_size=80) | st.binary(min_size=250, max_size=300)),
        sender=draw(st.sampled_from(UUIDS)),
        headers=tuple(
            draw(st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=6)), max_size=3))
        ),
        payload=draw(st.none() | st.sampled_from(PAYLOADS)),
        payload_type=draw(st.sampled_from(list(lamamq.PayloadType))),
        status=draw(st.none() | st.sampled_from([0, 200, 65535])),
        reserved=draw(st.sampled_from([bytes(16), bytes(15) + b"\x01", b"\xff" * 16])),
        topic=draw(st.none() | st.sampled_from(TOPICS)),
        message_id=draw(st.integers(0, 2**32 - 1)),
    )


TOPICS = ["a", "sensors/1/temp", "x" * 300, "é/ü", "50%", "%FF", "a%25", "a/+", "#", ""]

PAYLOADS = [
    b"",
    b"\xa5hello",
    b"\xa2\xc3\xa9",
    b"\xd9\x03abc",
    b"\xda\x00\x03abc",
    b"\xdb\x00\x00\x00\x03abc",
    b"\xc4\x02\x00\xff",
    b"\xc5\x00\x02\x00\xff",
    b"\xc6\x00\x00\x00\x02\x00\xff",
    b"\x2a",
    b"\xc0",
    b"\x93\x01\x02\x03",
    b"\x82\xa1a\x01\xa1b\x92\xc2\xc3",
    b"\xd4\x05\x00",
    b"\xc7\x03\x05abc",
    b"\xcb" + bytes(8),
]

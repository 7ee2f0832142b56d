"""Kernel and plain codec agree on every input: whole, cut anywhere, with bits flipped."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.rheos import OpCode
from tests.support.agreement import (
    AUDIENCES,
    SENDER,
    SOURCES,
    assert_kernel_agrees,
    kernel_encode,
    kernel_row,
    kernel_scan,
    new_topics,
    plain_delivery,
    plain_run,
)
from tests.support.publishes import PAYLOADS, TOPICS, UUIDS, publish, publishes

EACH_SOURCE = pytest.mark.parametrize(
    ("protocol", "order"), SOURCES, ids=[f"{p.label}-{o}" for p, o in SOURCES]
)


def mixed_run(protocol: Protocol, order: ByteOrder) -> bytes:
    """A run with repeats and changes of topic, sender, headers, payload type and size."""
    header = (("k", b"v"), ("kk", b"\xff"))
    return b"".join(
        [
            publish(protocol, order, value=b"one"),
            publish(protocol, order, value=b"two"),
            publish(protocol, order, value=b"", sender=UUIDS[0]),
            publish(protocol, order, value=b"x" * 33, channel=9, headers=header),
            publish(protocol, order, value=b"y" * 32, channel=9, headers=header),
            publish(
                protocol, order, channel=9, value=b"text", payload_type=lamamq.PayloadType.STRING
            ),
            publish(protocol, order, channel=9, payload_type=lamamq.PayloadType.EMPTY),
            publish(protocol, order, value=b"three", status=200, reserved=b"\x01" + bytes(15)),
            publish(protocol, order, payload=b"\xa3abc", value=b"z"),
            publish(protocol, order, payload=b"\x81\xa1a\x01", value=b"q" * 70, sender=UUIDS[2]),
        ]
    )


def other_packet(protocol: Protocol, order: ByteOrder) -> bytes:
    """A valid packet of a client that is not a publish."""
    match protocol.label:
        case "rheos1":
            return rheos1.encode(rheos1.Request(UUIDS[0], OpCode.SUBSCRIBE, b"channel/7", b""))
        case "rheos2":
            return rheos2.encode(rheos2.Event(UUIDS[0], OpCode.SUBSCRIBE, b"channel/7", b""))
        case "fleximq":
            header = fleximq.Header(topic="channel/7")
            return fleximq.encode(
                fleximq.Message(fleximq.MessageType.SUB, SENDER.number, header, b"")
            )
        case "herald":
            return herald.encode(herald.Ping(), order=order)
        case "lamamq":
            return lamamq.encode(lamamq.Subscribe(5, "channel/7"), order=order)


@EACH_SOURCE
def test_a_whole_run_is_scanned_and_delivered_to_every_protocol(
    protocol: Protocol, order: ByteOrder
) -> None:
    assert assert_kernel_agrees(protocol, mixed_run(protocol, order), order) == 10


@EACH_SOURCE
def test_every_cut_of_a_run_agrees(protocol: Protocol, order: ByteOrder) -> None:
    stream = mixed_run(protocol, order)[:420]
    counts = {assert_kernel_agrees(protocol, stream[:cut], order) for cut in range(len(stream) + 1)}
    assert len(counts) > 2


@EACH_SOURCE
def test_a_run_ends_at_the_first_other_packet(protocol: Protocol, order: ByteOrder) -> None:
    run = publish(protocol, order, value=b"one") * 3
    stream = run + other_packet(protocol, order) + run
    assert assert_kernel_agrees(protocol, stream, order) == 3
    batch, _, end = kernel_scan(protocol, stream, order)
    assert (len(batch), end) == (3, len(run))
    second = len(run) + len(other_packet(protocol, order))
    batch, _, end = kernel_scan(protocol, stream, order, start=second)
    assert (len(batch), end) == (3, len(stream))


@EACH_SOURCE
def test_every_flipped_bit_agrees(protocol: Protocol, order: ByteOrder) -> None:
    stream = publish(protocol, order, value=b"12", headers=(("k", b"v"),), status=5) * 2
    stream += other_packet(protocol, order)
    for bit in range(8 * len(stream)):
        flipped = bytearray(stream)
        flipped[bit // 8] ^= 1 << bit % 8
        assert_kernel_agrees(protocol, bytes(flipped), order)


@EACH_SOURCE
def test_random_damage_agrees(protocol: Protocol, order: ByteOrder) -> None:
    randomness = random.Random(f"{protocol.label}{order}")
    stream = mixed_run(protocol, order)
    for _ in range(300):
        damaged = bytearray(stream)
        for _ in range(randomness.randrange(1, 4)):
            damaged[randomness.randrange(len(damaged))] = randomness.choice(
                [0, 1, 2, 5, 0x7F, 0x80, 0xFA, 0xFF, randomness.randrange(256)]
            )
        assert_kernel_agrees(protocol, bytes(damaged), order)


@EACH_SOURCE
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_generated_streams_agree(data: st.DataObject, protocol: Protocol, order: ByteOrder) -> None:
    frames = data.draw(st.lists(publishes(protocol, order) | st.binary(max_size=12), max_size=6))
    stream = b"".join(frames)
    cut = data.draw(st.integers(0, len(stream)))
    assert_kernel_agrees(protocol, stream, order)
    assert_kernel_agrees(protocol, stream[:cut], order)


@EACH_SOURCE
def test_values_of_every_size_around_the_copy_boundaries(
    protocol: Protocol, order: ByteOrder
) -> None:
    sizes = [*range(70), 127, 128, 129, 223, 224, 225, 255, 256, 257, 258, 1000, 65535]
    stream = b"".join(
        publish(protocol, order, value=bytes(n % 251 for n in range(size))) for size in sizes
    )
    assert assert_kernel_agrees(protocol, stream, order) == len(sizes)


@EACH_SOURCE
def test_topics_of_every_kind_agree(protocol: Protocol, order: ByteOrder) -> None:
    lengths = (65_526, 65_527, 65_535, 65_536)
    starts = ("a@earliest", "a@#7", "a@ealiest", "a@last", "user@host", "a@earliest/b")
    channels = ("channel/13", "channel/07", "channel/256")
    for topic in [*TOPICS, *("t" * length for length in lengths), *starts, *channels]:
        try:
            frame = publish(protocol, order, topic=topic, value=b"v")
        except Exception:  # noqa: BLE001, S112
            continue
        assert_kernel_agrees(protocol, frame * 2, order)


@EACH_SOURCE
def test_selected_rows_alone_are_delivered_in_the_order_given(
    protocol: Protocol, order: ByteOrder
) -> None:
    batch, topics, _ = kernel_scan(protocol, mixed_run(protocol, order), order)
    picked = [8, 2, 3, 4, 0]
    rows = memoryview(b"".join(n.to_bytes(4, "little") for n in picked)).cast("I")
    for target, target_order in AUDIENCES:
        frames = kernel_encode(target, target_order, batch, topics, rows)
        expected = []
        for position, index in enumerate(picked):
            row = kernel_row(batch, topics, index)
            if protocol is LAMAMQ:
                kind = lamamq.PayloadType.EMPTY if index == 6 else lamamq.PayloadType.BUFFER
                row = type(row)(**{**row.__dict__, "payload_type": kind})
            expected.append(plain_delivery(protocol, target, target_order, row, position))
        assert frames == b"".join(expected)


@pytest.mark.parametrize("payload", PAYLOADS, ids=bytes.hex)
def test_fleximq_payloads_of_every_format_agree(payload: bytes) -> None:
    frame = publish(FLEXIMQ, "big", payload=payload)
    assert assert_kernel_agrees(FLEXIMQ, frame, "big") == 1
    length = len(payload) + 1
    longer = frame[: len(frame) - len(payload) - 8] + length.to_bytes(8, "big") + payload + b"\xc0"
    assert assert_kernel_agrees(FLEXIMQ, longer, "big") == (payload == b"")


def test_fleximq_messages_under_another_client_id_are_left_to_the_session() -> None:
    frame = publish(FLEXIMQ, "big", value=b"v")
    other = frame[:2] + (1001).to_bytes(4, "big") + frame[6:]
    assert assert_kernel_agrees(FLEXIMQ, frame + other, "big") == 1


def test_more_rheos_senders_than_a_batch_holds_start_a_new_batch() -> None:
    for protocol in (RHEOS1, RHEOS2):
        frames = [
            publish(protocol, "little", value=b"v", sender=n.to_bytes(16, "big"))
            for n in range(100)
        ]
        stream = b"".join(frames)
        assert assert_kernel_agrees(protocol, stream, "little") == 64
        batch, topics, end = kernel_scan(protocol, stream, "little", start=len(frames[0]) * 64)
        assert (len(batch), end) == (36, len(stream))
        assert kernel_row(batch, topics, 35).sender == (99).to_bytes(16, "big")


@EACH_SOURCE
def test_runs_over_many_topics_agree(protocol: Protocol, order: ByteOrder) -> None:
    """A table that is too large for the processor's cache is looked up ahead, up to the end."""
    topics = new_topics()
    names = [f"plant/{'x' * (n % 40)}{n}" for n in range(5000)]
    for name in names:
        topics.intern(name)
    randomness = random.Random(5)
    chosen = randomness.choices(names, k=200)
    frames = [
        publish(protocol, order, topic=name, value=randomness.randbytes(randomness.choice((8, 70))))
        for name in chosen
    ]
    expected = [plain_run(protocol, frame, order)[0][0].topic for frame in frames]
    for stream in (frames, [frame for frame in frames for _ in range(2)], frames[:3], frames[:1]):
        cut = b"".join(stream)[: -randomness.randrange(1, 6)]
        batch, _, _ = kernel_scan(protocol, cut, order, topics=topics)
        found = [topics.name(batch.topic_id(row)) for row in range(len(batch))]
        repeats = len(stream) // len(frames) or 1
        assert found == [name for name in expected for _ in range(repeats)][: len(stream) - 1]


@EACH_SOURCE
def test_equal_frames_over_many_topics_are_found_by_what_was_looked_at_ahead(
    protocol: Protocol, order: ByteOrder
) -> None:
    topics = new_topics()
    names = [f"plant/{n:06}/temperature" for n in range(5000)]
    for name in names:
        topics.intern(name)
    chosen = random.Random(6).choices(names, k=200)
    chosen[100:100] = [names[0]] * 40  # a repeated name is not looked up
    frames = [publish(protocol, order, topic=name, value=b"21.5") for name in chosen]
    frames.insert(180, publish(protocol, order, topic=names[1], value=b"longer"))
    expected = [plain_run(protocol, frame, order)[0][0].topic for frame in frames]
    batch, _, _ = kernel_scan(protocol, b"".join(frames), order, topics=topics)
    assert [topics.name(batch.topic_id(row)) for row in range(len(batch))] == expected

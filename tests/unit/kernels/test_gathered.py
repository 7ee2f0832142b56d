"""Frames that refer to large values have the bytes of frames that copy them."""

import array
import random
import socket
from typing import cast

import pytest

from penstock._kernels.batch import Batch
from penstock._kernels.gathered import Gathered
from penstock._kernels.topics import TopicTable
from penstock.limits import GATHERED_VALUE_BYTES_MIN
from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from tests.support.agreement import AUDIENCES, SOURCES, kernel_encode, kernel_scan
from tests.support.publishes import publish

LARGE = 2 * GATHERED_VALUE_BYTES_MIN


def scanned(protocol: Protocol, order: ByteOrder, sizes: list[int]) -> tuple[Batch, TopicTable]:
    """A batch of values of some sizes, with headers where the protocol has them."""
    randomness = random.Random(1)
    stream = b"".join(
        publish(
            protocol,
            order,
            value=randomness.randbytes(size),
            channel=number % 3,
            headers=(("k", b"v"),),
            reserved=bytes([number % 2]) * 16,
        )
        for number, size in enumerate(sizes)
    )
    batch, topics, end = kernel_scan(protocol, stream, order)
    assert (len(batch), end) == (len(sizes), len(stream))
    return batch, topics


def gather(
    target: Protocol,
    order: ByteOrder,
    batch: Batch,
    topics: TopicTable,
    rows: "memoryview[int] | None" = None,
) -> Gathered:
    batch.lends = True
    frames = cast("Gathered", kernel_encode(target, order, batch, topics, rows))
    batch.lends = False
    assert isinstance(frames, Gathered)
    return frames


@pytest.mark.parametrize(("source", "source_order"), SOURCES, ids=str)
@pytest.mark.parametrize(("target", "target_order"), AUDIENCES, ids=str)
def test_gathered_and_copied_frames_are_the_same(
    source: Protocol, source_order: ByteOrder, target: Protocol, target_order: ByteOrder
) -> None:
    sizes = [
        LARGE,
        3 * LARGE,
        0,
        5,
        LARGE,
        LARGE,
        *[100] * 70,
        LARGE,
        300,
        GATHERED_VALUE_BYTES_MIN,
    ]
    batch, topics = scanned(source, source_order, sizes)
    some = ([0, 1, 2, 4], [2, 3, *range(40, 79)], [4, 10, 11], [])
    for rows in (None, *(memoryview(array.array("I", each)) for each in some)):
        copied = kernel_encode(target, target_order, batch, topics, rows)
        if rows is not None and not len(rows):
            assert copied == b""
            continue
        frames = gather(target, target_order, batch, topics, rows)
        assert len(frames) == len(copied)
        assert frames.copied() == copied


def test_small_values_are_copied() -> None:
    batch, topics = scanned(HERALD, "big", [GATHERED_VALUE_BYTES_MIN - 1] * 9)
    batch.lends = True
    assert isinstance(kernel_encode(HERALD, "big", batch, topics), bytes)
    few = memoryview(array.array("I", [0]))
    many, topics = scanned(HERALD, "big", [LARGE, *[GATHERED_VALUE_BYTES_MIN - 1] * 3])
    many.lends = True
    assert isinstance(kernel_encode(HERALD, "big", many, topics), bytes), "less than half is large"
    large, topics = scanned(HERALD, "big", [8, *[LARGE] * 9])
    large.lends = True
    assert isinstance(kernel_encode(HERALD, "big", large, topics), Gathered)
    assert isinstance(kernel_encode(HERALD, "big", large, topics, few), bytes)


def test_what_the_system_does_not_take_is_the_rest() -> None:
    batch, topics = scanned(FLEXIMQ, "big", [LARGE] * 700)  # more parts than one call may have
    copied = kernel_encode(HERALD, "big", batch, topics)
    frames = gather(HERALD, "big", batch, topics)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        sent = frames.send(ours.fileno())
        assert 0 < sent < len(copied)
        assert frames.send(ours.fileno()) == 0, "it is full"
        (rest,) = frames.rest(sent)
        assert rest == copied[sent:]
        (again,) = frames.rest(sent)
        assert again is rest, "other connections share it"
        assert b"".join(frames.rest(sent + 9)) == copied[sent + 9 :]
        assert frames.rest(len(copied)) == []
        with pytest.raises(ValueError, match="byte"):
            frames.rest(len(copied) + 1)
        received = theirs.recv(len(copied), socket.MSG_DONTWAIT)
        assert received == copied[: len(received)]


def test_each_byte_is_copied_once_for_all_connections() -> None:
    batch, topics = scanned(FLEXIMQ, "big", [LARGE, 9, *[LARGE] * 20])
    copied = kernel_encode(HERALD, "big", batch, topics)
    frames = gather(HERALD, "big", batch, topics)
    end = len(copied)
    starts = [end, end - 1, end - 1, 90_000, 89_999, 20_000, 100_000, 89_999, 3, 0, 50_000]
    parts: list[bytes | memoryview] = []
    for start in starts:
        found = frames.rest(start)
        assert b"".join(found) == copied[start:], start
        parts += found
    kept = {id(part): len(part) for part in parts if isinstance(part, bytes)}
    assert sum(kept.values()) == end, "the pieces do not overlap"
    assert frames.copied() == copied
    (whole,) = frames.rest(0)
    assert whole is frames.copied()


def test_all_parts_are_sent_where_there_is_room() -> None:
    batch, topics = scanned(HERALD, "big", [GATHERED_VALUE_BYTES_MIN] * 300)
    frames = gather(HERALD, "little", batch, topics)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            theirs.settimeout(5)
            received = bytearray()
            sent = 0
            while sent < len(frames):
                sent += (
                    frames.send(ours.fileno())
                    if not sent
                    else ours.send(b"".join(frames.rest(sent)))
                )
                received += theirs.recv(1 << 22)
            while len(received) < len(frames):
                received += theirs.recv(1 << 22)
            assert received == frames.copied()


def test_a_peer_that_left_takes_nothing() -> None:
    batch, topics = scanned(HERALD, "big", [LARGE] * 4)
    frames = gather(HERALD, "big", batch, topics)
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        assert frames.send(ours.fileno()) == 0


def test_values_that_were_released_are_not_read() -> None:
    batch, topics = scanned(HERALD, "big", [LARGE] * 4)
    frames, kept = (gather(HERALD, "big", batch, topics) for _ in range(2))
    whole = kept.copied()
    batch.clear()
    with pytest.raises(RuntimeError, match="released"):
        frames.copied()
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(RuntimeError, match="released"):
        frames.send(ours.fileno())
    assert b"".join(kept.rest(3)) == whole[3:], "the copy stays"

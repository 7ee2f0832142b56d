"""The queue of bytes that are sent as messages."""

import random

from penstock.conform.fleximq import encoding as fx
from penstock.transport.out_queue import OutQueue
from penstock.wire.fleximq.packets import frame_size


def frames() -> list[bytes]:
    return [
        fx.frame(fx.PUB, 1000, fx.topic("t" * size), bytes(10 * size)) for size in (1, 0, 30, 3000)
    ]


def test_each_message_is_one_frame_however_the_bytes_came() -> None:
    chance = random.Random(1)
    for _ in range(200):
        wanted = [chance.choice(frames()) for _ in range(6)]
        stream = b"".join(wanted)
        cuts = sorted(chance.randrange(len(stream)) for _ in range(chance.randrange(4)))
        queue = OutQueue(bytes_max=10, frame_size=frame_size)
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            if start < end:
                queue.append(memoryview(stream)[start:end])
        assert queue.bytes == len(stream)
        assert [b"".join(queue.take()) for _ in wanted] == wanted
        assert not queue
        assert not queue.bytes


def test_pieces_are_not_copied() -> None:
    payload = bytes(100_000)
    frame = fx.frame(fx.PUB, 1000, fx.topic("t"), payload)
    queue = OutQueue(bytes_max=10, frame_size=frame_size)
    queue.append(frame[: -len(payload)])
    queue.append(payload)
    head, shared = queue.take()
    assert head + shared == frame
    assert shared is payload


def test_without_frames_a_message_has_a_limited_size() -> None:
    queue = OutQueue(bytes_max=4)
    for data in (b"ab", b"cdefg", b"h"):
        queue.append(data)
    assert [b"".join(queue.take()) for _ in range(2)] == [b"abcd", b"efgh"]
    assert not queue


def test_a_queue_that_was_cleared_has_only_what_came_afterwards() -> None:
    queue = OutQueue(bytes_max=4)
    queue.append(b"abc")
    queue.clear()
    assert (bool(queue), queue.bytes) == (False, 0)
    queue.append(b"d")
    assert (queue.bytes, queue.take(), queue.bytes) == (1, [b"d"], 0)

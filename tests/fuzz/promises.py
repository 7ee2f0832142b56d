"""What a decoder promises for every input, asserted for one input."""

import itertools
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from penstock.wire.decoder import Decoder
from tests.support.streams import decode_all

Make = Callable[[], Decoder[Any]]


def assert_promises(make: Make, encode: Callable[[Any], bytes], stream: bytes) -> list[Any]:
    """Assert all promises for `stream`; return its outcome.

    Nothing but WireError is raised, however the stream is cut the outcome is the same, a failure
    stays, and the packets up to the first rejection (which may count in a codec that has states)
    encode to a stream that decodes to the same packets.
    """
    whole = outcome(make(), [stream])
    cut = cut_of(stream)
    assert outcome(make(), [stream[:cut], stream[cut:]]) == whole, f"cut at {cut}"
    assert outcome(make(), (stream[i : i + 1] for i in range(len(stream)))) == whole, "by bytes"
    packets = list(itertools.takewhile(lambda item: not isinstance(item, tuple), whole))
    again = outcome(make(), [b"".join(encode(packet) for packet in packets)])
    assert again == [*packets, ("unread", 0)], "encoded again"
    return whole


def outcome(decoder: Decoder[Any], chunks: Iterable[bytes]) -> list[Any]:
    """All that `decoder` makes of `chunks`, and last how it ends: a failure, or bytes unread.

    Packets come as they are; rejections and the end are tuples.
    """
    items = decode_all(decoder, chunks)
    failure = items[-1:]
    if not (failure and isinstance(failure[0], tuple) and failure[0][0] == "failed"):
        return [*items, ("unread", decoder.unread)]
    for more in (b"", bytes(64)):
        assert decode_all(decoder, [more]) == failure, "does not stay failed"
        assert decoder.unread == 0, "keeps bytes after its failure"
    return items


def cut_of(stream: bytes) -> int:
    """A place to cut `stream` that depends on nothing but its bytes."""
    return zlib.crc32(stream) % (len(stream) + 1)

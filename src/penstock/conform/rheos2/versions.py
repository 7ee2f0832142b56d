"""Cases of both Rheos versions on one port; the first packet identifies the version."""

import itertools
import struct
import time
import zlib
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.peer import equal
from penstock.conform.rheos.encoding import (
    BOB,
    CREATE,
    PUBLISH,
    RHEOS1,
    RHEOS2,
    SUBSCRIBE,
    SUCCESS,
    Rheos,
)
from penstock.conform.rheos.peer import client, created, message_offset

__all__ = ["cases"]

OVERVIEW: Final = "Overview"
PAIRS: Final = [(sends, receives) for sends in (RHEOS1, RHEOS2) for receives in (RHEOS1, RHEOS2)]

WAIT_SECONDS_MAX: Final = 1.0
"""More than the 50 ms a packet may wait, and far less than a handshake may take."""

cases: Final[CaseCollector[[]]] = CaseCollector()


def ambiguous_name(context: CaseContext, payload_bytes: int) -> bytes:
    """Return a name that makes a v1 request valid in v2 too.

    It begins with the data length of v2, which is 2 below the payload length of v1.
    """
    return struct.pack("<I", payload_bytes - 2) + context.topic(b"x")


def numbered(context: CaseContext, sends: Rheos, receives: Rheos) -> bytes:
    """Return a topic name of a pair of versions."""
    return context.topic(b"%d%d" % (sends.version, receives.version))


@cases.profile(
    OVERVIEW, "A message of either version reaches subscribers of either", requires=Setup.SHARED
)
def messages_cross_versions(context: CaseContext) -> None:
    payloads = (b"", b"\xfa\xac\x15", bytes(range(256)), b"x" * 65_535)
    for sends, receives in context.each(PAIRS):
        name = numbered(context, sends, receives) + b"/\xff\x00%E9"
        peer = client(context, receives)
        other = created(context, sends, name, identity=BOB)
        peer.granted(SUBSCRIBE, name)
        other.send(b"".join(sends.request(PUBLISH, name, one, client=BOB) for one in payloads))
        equal(set(other.codes(len(payloads))), {SUCCESS}, "codes")
        for payload in payloads:
            peer.delivered(name, payload, BOB)


@cases.profile(OVERVIEW, "A topic created in either version exists in both", requires=Setup.SHARED)
def topics_are_shared_by_versions(context: CaseContext) -> None:
    for sends, receives in context.each(PAIRS):
        topic = numbered(context, sends, receives)
        peer = client(context, receives)
        peer.refused(SUBSCRIBE, topic)
        created(context, sends, topic, identity=BOB)
        peer.refused(CREATE, topic)
        peer.granted(SUBSCRIBE, topic)
        peer.granted(SUBSCRIBE, topic + b"/#")


@cases.profile(OVERVIEW, "Both versions share one sequence of offsets", requires=Setup.SHARED)
def versions_share_offsets(context: CaseContext) -> None:
    one, two = created(context, RHEOS1, context.topic()), client(context, RHEOS2)
    offsets = [
        message_offset(peer.granted(PUBLISH, context.topic())) for peer in (one, two, two, one)
    ]
    equal(offsets, list(range(offsets[0], offsets[0] + 4)), "offsets")


@cases.profile(
    OVERVIEW,
    "A v2 message too large for a v1 request reaches v1 subscribers",
    requires=Setup.SHARED,
)
def a_large_message_reaches_v1(context: CaseContext) -> None:
    payload = bytes(range(256)) * 4096
    other = created(context, RHEOS2, context.topic(), identity=BOB)
    peer = client(context, RHEOS1)
    peer.granted(SUBSCRIBE, context.topic())
    other.granted(PUBLISH, context.topic(), payload)
    peer.delivered(context.topic(), payload, BOB)


@cases.profile(
    OVERVIEW,
    "A first packet that fits both versions is v1 if no checksum follows",
    requires=Setup.SHARED,
)
def an_ambiguous_packet_is_v1_without_a_checksum(context: CaseContext) -> None:
    name = ambiguous_name(context, 3)
    peer = client(context, RHEOS1)
    # The first byte of the next request is not that of a checksum.
    peer.send(RHEOS1.request(CREATE, name, b"abc") + RHEOS1.request(PUBLISH, name, b"1"))
    peer.acknowledged()
    peer.acknowledged()


@cases.profile(
    OVERVIEW,
    "A first packet that fits both versions is v2 if its checksum follows",
    requires=Setup.SHARED,
)
def an_ambiguous_packet_is_v2_with_a_checksum(context: CaseContext) -> None:
    # Read as v1: a name of 24 bytes, then a payload length that is the data's length and 2 more.
    data, start = b"d" * 24, context.topic(b"").ljust(20, b"x")
    name = start + struct.pack("<H", len(data) + 2) + b"ab"
    whole = RHEOS2.request(CREATE, name, data)
    body = whole[22:-4]
    (payload_bytes,) = struct.unpack_from("<H", body, 2 + len(name))
    equal(payload_bytes, len(body) - 2 - len(name) - 2, "a payload length, read as v1, of")
    peer = client(context, RHEOS2)
    peer.send(whole).acknowledged()
    peer.granted(PUBLISH, name, data)


@cases.profile(
    OVERVIEW,
    "A first packet that fits both versions is v1 when the client half-closes",
    requires=Setup.SHARED,
)
def an_ambiguous_packet_is_v1_at_the_end(context: CaseContext) -> None:
    peer = client(context, RHEOS1)
    peer.request(CREATE, ambiguous_name(context, 4), b"abcd").half_close()
    peer.acknowledged()
    peer.expect_close()


@cases.profile(
    OVERVIEW,
    "A first packet that fits both versions is v1 if nothing follows for 50 ms",
    requires=Setup.SHARED,
)
def an_ambiguous_packet_is_v1_after_a_short_wait(context: CaseContext) -> None:
    peer = client(context, RHEOS1)
    peer.request(CREATE, ambiguous_name(context, 5), b"12345")
    peer.acknowledged()
    equal(time.monotonic() - peer.sent_at < WAIT_SECONDS_MAX, True, "an answer in time:")  # noqa: FBT003


@cases.profile(
    OVERVIEW,
    "A first packet that fits both versions with a wrong checksum is FAILED and closes",
    requires=Setup.SHARED,
)
def a_damaged_packet_is_not_read_as_v1(context: CaseContext) -> None:
    name = ambiguous_name(context, 5)
    request = RHEOS1.request(CREATE, name, b"12345")
    for position in context.each(range(4)):
        checksum = bytearray(struct.pack("<I", zlib.crc32(request)))
        checksum[position] ^= 0x10
        if checksum[0] == request[0]:
            checksum[0] ^= 1
        peer = client(context, RHEOS2).send(request + bytes(checksum))
        peer.expect_failed()
        peer.expect_close()
    client(context, RHEOS1).refused(SUBSCRIBE, name)


@cases.profile(
    OVERVIEW,
    "A body that only v2 can have is answered in v2, if it is too large",
    requires=Setup.SHARED,
)
def a_body_too_large_is_answered_in_v2(context: CaseContext) -> None:
    for size in context.each((16 * 1024 * 1024 + 1, 2**32 - 1)):
        peer = client(context, RHEOS2).send(struct.pack("<BI", 0xFA, size))
        peer.expect_failed()
        peer.expect_close()


@cases.profile(OVERVIEW, "A connection does not change its version", requires=Setup.SHARED)
def a_connection_does_not_change_its_version(context: CaseContext) -> None:
    topic = context.topic()
    peer = created(context, RHEOS1, topic)
    requests = (RHEOS2.request(PUBLISH, topic, b"%d" % number) for number in itertools.count(1))
    peer.send(next(each for each in requests if each[-4] != 0xFA))
    peer.expect_failed()  # a body that is no topic encoding
    peer.expect_failed()  # and a checksum that starts no request
    peer.expect_close()
    peer = client(context, RHEOS2)
    peer.granted(SUBSCRIBE, topic)
    peer.send(RHEOS1.request(PUBLISH, topic, b"1") + bytes(4)).expect_failed()
    peer.expect_close()


@cases.profile(OVERVIEW, "A port that serves v2 alone does not serve v1", requires=Setup.PINNED)
def a_pinned_port_serves_no_other_version(context: CaseContext) -> None:
    peer = client(context, RHEOS2)
    peer.send(RHEOS1.request(CREATE, b"a") + bytes(4)).expect_failed()
    peer.expect_close()

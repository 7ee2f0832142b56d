"""Rheos cases of Penstock's profile about cut streams, malformed packets and sessions."""

import random
import struct
import time
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.peer import Failed, equal
from penstock.conform.rheos.encoding import (
    ALICE,
    BOB,
    CREATE,
    FAILED,
    INVALID_OPERATION,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Rheos,
)
from penstock.conform.rheos.peer import RheosPeer, client, created, message_offset
from penstock.conform.rheos.sections import NOTES, OPERATIONS, OVERVIEW, REQUEST, TOPIC_ERRORS

__all__ = ["cases"]

CODES: Final = (SUCCESS, SUCCESS, FAILED, FAILED, SUCCESS, SUCCESS)
PAYLOADS: Final = (b"\xfa\xac\x15", b"", b"last")
PAUSE_SECONDS: Final = 0.002
"""Long enough for a server to look at half a packet."""
ATTEMPT_SECONDS_MAX: Final = 5.0

cases: Final[CaseCollector[[Rheos]]] = CaseCollector()

# --- Cuts -----------------------------------------------------------------------------------------


def session(rheos: Rheos, topic: bytes) -> bytes:
    """Return the requests of a session, whose answers are CODES and PAYLOADS."""
    return b"".join(
        (
            rheos.request(SUBSCRIBE, topic),
            rheos.request(PUBLISH, topic, PAYLOADS[0]),
            rheos.packet(INVALID_OPERATION, b"\xff"),
            rheos.request(PUBLISH, topic + b"?", b"unknown"),
            rheos.request(PUBLISH, topic, PAYLOADS[1]),
            rheos.request(PUBLISH, topic, PAYLOADS[2]),
        )
    )


def check_session(peer: RheosPeer, pieces: list[bytes]) -> None:
    """Send a session in pieces, and check its answers."""
    for piece in pieces:
        peer.send(piece)
        time.sleep(PAUSE_SECONDS)
    answers, messages = peer.sort(acks=len(CODES), deliveries=len(PAYLOADS))
    equal(tuple(ack.code for ack in answers), CODES, "codes")
    equal(tuple(message.payload for message in messages), PAYLOADS, "payloads")
    offsets = [message_offset(answers[number].identifier) for number in (1, 4, 5)]
    equal(offsets, list(range(offsets[0], offsets[0] + 3)), "offsets")


@cases.profile(REQUEST, "A session cut in two at any byte is answered in the same way")
def a_session_may_be_cut_anywhere(context: CaseContext, rheos: Rheos) -> None:
    created(context, rheos, context.topic())
    stream = session(rheos, context.topic())
    for cut in context.each(range(len(stream) + 1)):
        peer = client(context, rheos)
        check_session(peer, [stream[:cut], stream[cut:]])
        peer.close()


@cases.profile(REQUEST, "A session may arrive byte by byte")
def a_session_arrives_byte_by_byte(context: CaseContext, rheos: Rheos) -> None:
    created(context, rheos, context.topic())
    stream = session(rheos, context.topic())
    check_session(client(context, rheos), [stream[at : at + 1] for at in range(len(stream))])


@cases.profile(NOTES, "A client that leaves after any byte of a packet does not disturb others")
def a_client_may_leave_after_any_byte(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    other, receiver = created(context, rheos, topic, identity=BOB), client(context, rheos)
    receiver.granted(SUBSCRIBE, topic)
    whole = rheos.request(PUBLISH, topic, b"never whole")
    for cut in context.each(range(1, len(whole))):
        peer = client(context, rheos).send(whole[:cut])
        time.sleep(PAUSE_SECONDS)
        peer.close()
        other.granted(PUBLISH, topic, b"%d" % cut)
        receiver.delivered(topic, b"%d" % cut, BOB)
    receiver.expect_alive()


@cases.profile(NOTES, "Packets of ten clients that arrive in turns of five bytes are not mixed")
def packets_of_several_clients_are_not_mixed(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    receiver = created(context, rheos, topic)
    receiver.granted(SUBSCRIBE, topic)
    peers = [client(context, rheos, identity=bytes((number,)) * 16) for number in range(10)]
    wholes = [rheos.request(PUBLISH, topic, peer.identity, client=peer.identity) for peer in peers]
    for at in range(0, len(wholes[0]), 5):
        for peer, whole in zip(peers, wholes, strict=True):
            peer.send(whole[at : at + 5])
        time.sleep(PAUSE_SECONDS)
    for peer in peers:
        peer.acknowledged()
    found = sorted(receiver.delivery() for _ in peers)
    equal(found, [rheos.delivery(peer.identity, topic, peer.identity) for peer in peers])


@cases.profile(REQUEST, "A packet that the end of the input cuts off fails")
def a_packet_that_the_end_cuts_off_fails(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    receiver = created(context, rheos, topic, identity=BOB)
    receiver.granted(SUBSCRIBE, topic)
    whole = rheos.request(PUBLISH, topic, b"never whole")
    for cut in context.each((1, 5, 21, 22, 30, len(whole) - 1)):
        peer = client(context, rheos)
        peer.granted(PUBLISH, topic, b"%d" % cut)
        peer.send(whole[:cut]).half_close()
        peer.expect_failed()
        peer.expect_close()
        receiver.delivered(topic, b"%d" % cut)
    receiver.expect_alive()


@cases.profile(REQUEST, "A first packet that the end cuts off fails", requires=Setup.PINNED)
def a_first_packet_that_the_end_cuts_off_fails(context: CaseContext, rheos: Rheos) -> None:
    whole = rheos.request(CREATE, context.topic())
    for cut in context.each((1, 22, len(whole) - 1)):
        peer = client(context, rheos).send(whole[:cut]).half_close()
        peer.expect_failed()
        peer.expect_close()


@cases.profile(
    REQUEST,
    "A first packet that the end cuts off fails where it can be of one version alone",
    requires=Setup.SHARED,
)
def a_first_packet_that_the_end_cuts_off_is_answered(context: CaseContext, rheos: Rheos) -> None:
    whole = rheos.request(CREATE, context.topic())
    peer = client(context, rheos).send(whole[:-1]).half_close()
    peer.expect_failed()
    peer.expect_close()
    for cut in context.each((1, 22)):
        client(context, rheos).send(whole[:cut]).half_close().expect_close()


# --- Malformed packets ----------------------------------------------------------------------------


@cases.profile(OPERATIONS, "A reserved or unknown operation fails and the connection goes on")
def an_unknown_operation_does_not_close(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    peer = created(context, rheos, topic)
    for opcode in context.each((INVALID_OPERATION, 4, 0x7F, 0xFF)):
        peer.send(rheos.request(opcode, topic, b"1") + rheos.request(PUBLISH, topic, b"2"))
        peer.expect_failed()
        peer.acknowledged()


@cases.profile(OPERATIONS, "The first request may be one that fails")
def the_first_request_may_fail(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    peer.refused(INVALID_OPERATION, context.topic())
    peer.granted(CREATE, context.topic())


@cases.profile(TOPIC_ERRORS, "A body that its lengths do not fill fails and the connection goes on")
def a_body_of_another_size_does_not_close(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    peer = created(context, rheos, topic)
    for opcode, change in context.each(
        [(opcode, change) for opcode in (CREATE, SUBSCRIBE, PUBLISH) for change in (-1, 1, 100)]
    ):
        body = rheos.body(topic, b"12345")
        body = body[:change] if change < 0 else body + bytes(change)
        peer.send(rheos.packet(opcode, body) + rheos.request(PUBLISH, topic, b"2"))
        peer.expect_failed()
        peer.acknowledged()


@cases.profile(TOPIC_ERRORS, "A body too short for its lengths fails and the connection goes on")
def a_body_below_its_lengths_does_not_close(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    for size in context.each((0, 1, 2, 3)):
        peer.expect_alive()
        peer.send(rheos.packet(PUBLISH, bytes(size))).expect_failed()
        peer.expect_alive()


@cases.profile(TOPIC_ERRORS, "A name length beyond the body fails and the connection goes on")
def a_name_beyond_the_body_does_not_close(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    peer.expect_alive()
    peer.send(rheos.packet(CREATE, b"\xff\xff" + bytes(20))).expect_failed()
    peer.expect_alive()


@cases.profile(NOTES, "A wrong first byte is answered with FAILED and closes")
def a_wrong_magic_closes(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    created(context, rheos, topic)
    for first in context.each((b"\x00", b"\xac", b"\xfb", b"\x15", b"\xfe\xca", b"GET / ")):
        peer = client(context, rheos)
        peer.send(rheos.request(PUBLISH, topic, b"1") + first).acknowledged()
        peer.expect_failed()
        peer.expect_close()


@cases.profile(NOTES, "A length above the limit is answered at once with FAILED and closes")
def a_length_above_the_limit_closes(context: CaseContext, rheos: Rheos) -> None:
    for length in context.each((rheos.body_bytes_max + 1, 2**32 - 1)):
        peer = client(context, rheos)
        peer.expect_alive()
        peer.send(struct.pack("<BI", 0xFA, length)).expect_failed()
        peer.expect_close()


@cases.profile(NOTES, "Nothing behind a wrong first byte is taken")
def nothing_behind_a_wrong_magic_is_taken(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    receiver = created(context, rheos, topic, identity=BOB)
    receiver.granted(SUBSCRIBE, topic)
    good, behind = (rheos.request(PUBLISH, topic, text) for text in (b"before", b"behind"))
    peer = client(context, rheos).send(good + b"\x00" + behind)
    peer.acknowledged()
    peer.expect_failed()
    peer.expect_close()
    receiver.delivered(topic, b"before", ALICE)
    receiver.expect_alive()


@cases.profile(NOTES, "A wrong first packet is answered like any other", requires=Setup.PINNED)
def a_wrong_first_packet_is_answered(context: CaseContext, rheos: Rheos) -> None:
    for data in context.each((b"\x00", b"\xfe\xca\x01", struct.pack("<BI", 0xFA, 2**32 - 1))):
        peer = client(context, rheos).send(data)
        peer.expect_failed()
        peer.expect_close()
    peer = client(context, rheos).send(rheos.packet(CREATE, b"\0"))
    peer.expect_failed()
    peer.expect_alive()


@cases.profile(
    NOTES, "A first packet that fits no version closes without an answer", requires=Setup.SHARED
)
def a_first_packet_of_no_version_closes(context: CaseContext, rheos: Rheos) -> None:
    client(context, rheos).expect_alive()
    for body in context.each(
        (b"", b"\0\0\0", b"\xff\xff" + bytes(20), b"\x01\x00a\x09\x00" + bytes(20))
    ):
        client(context, rheos).send(rheos.packet(CREATE, body)).expect_close()


@cases.profile(NOTES, "100 damaged streams do not disturb other clients")
def damaged_streams_disturb_no_other(context: CaseContext, rheos: Rheos) -> None:
    chance = random.Random(1)  # noqa: S311  (the same damage in each run)
    topic = context.topic()
    other, receiver = created(context, rheos, topic, identity=BOB), client(context, rheos)
    receiver.granted(SUBSCRIBE, topic)
    # Each stream ends with half a request, so that no damage can make it a PUBLISH of Bob's.
    stream = rheos.request(INVALID_OPERATION, topic, b"1") * 3 + rheos.request(3, topic)[:-1]
    for number in context.each(range(100)):
        damaged = bytearray(stream)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(3, 256)
        peer = client(context, rheos).send(bytes(damaged))
        time.sleep(PAUSE_SECONDS)
        peer.close()
        other.granted(PUBLISH, topic, b"%d" % number)
        receiver.delivered(topic, b"%d" % number, BOB)


# --- Sessions -------------------------------------------------------------------------------------


@cases.profile(OVERVIEW, "A session may send requests under several client ids")
def a_session_may_use_several_client_ids(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    for name, identity in ((b"a", ALICE), (b"b", BOB)):
        peer.send(rheos.request(CREATE, context.topic(name), client=identity)).acknowledged()


@cases.profile(OVERVIEW, "Two connections may use one client id")
def two_connections_may_use_one_client_id(context: CaseContext, rheos: Rheos) -> None:
    first, second = created(context, rheos, context.topic()), client(context, rheos)
    second.granted(PUBLISH, context.topic(), b"1")
    first.granted(PUBLISH, context.topic(), b"2")


@cases.profile(
    OVERVIEW,
    "Where clients need credentials the first request fails and closes",
    requires=Setup.CREDENTIALS,
)
def without_credentials_requests_fail(context: CaseContext, rheos: Rheos) -> None:
    for opcode in context.each((CREATE, PUBLISH)):
        peer = client(context, rheos).send(rheos.request(opcode, b"channel/1") * 3)
        peer.expect_failed()
        peer.expect_close()


@cases.profile(
    OVERVIEW, "A server that is full answers FAILED and closes", requires=Setup.ONE_SESSION
)
def a_full_server_refuses(context: CaseContext, rheos: Rheos) -> None:
    first = created(context, rheos, context.topic())
    second = client(context, rheos)
    second.refused(PUBLISH, context.topic(), b"1")
    second.expect_close()
    first.granted(PUBLISH, context.topic(), b"2")


@cases.profile(OVERVIEW, "A client that leaves makes room for another", requires=Setup.ONE_SESSION)
def a_client_that_leaves_makes_room(context: CaseContext, rheos: Rheos) -> None:
    for number in context.each(range(5)):
        until = time.monotonic() + ATTEMPT_SECONDS_MAX
        while True:
            peer = client(context, rheos)
            try:
                peer.granted(CREATE, context.topic(b"%d" % number))
            except Failed:
                if time.monotonic() > until:
                    raise
            else:
                break
            finally:
                peer.close()


@cases.profile(
    OVERVIEW,
    "A connection without a whole request in time closes without an answer",
    requires=Setup.SHORT_HANDSHAKE,
)
def a_late_first_request_closes(context: CaseContext, rheos: Rheos) -> None:
    peer = created(context, rheos, context.topic())
    late = [client(context, rheos) for _ in range(3)]
    whole = rheos.request(CREATE, context.topic(b"late"))
    for one, part in zip(late, (b"", b"\xfa", whole[:-1]), strict=True):
        one.send(part)
    for one in late:
        one.expect_close()
    peer.granted(PUBLISH, context.topic(), b"the other session goes on")

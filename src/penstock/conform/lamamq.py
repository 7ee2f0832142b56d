"""Conformance cases of LamaMQ. The bytes are made here, from the specification, in network order.

The specification leaves the bodies of subscriptions and middleware empty, so that most of what can
be seen of a server is the profile's.
"""

import struct
from typing import Final

from penstock.conform.case import Book, Case
from penstock.conform.peer import Failed, Peer, Skipped, spelled
from penstock.conform.stage import Stage

__all__ = ["CASES", "enter"]

PUSH, FORWARD, SUBSCRIBE, UNSUBSCRIBE, REGISTER, UNREGISTER = 0, 1, 32, 33, 64, 65
BAD_REQUEST: Final = 2
EMPTY, STRING, BUFFER = 0, 1, 2
CREATED_AT: Final = 1_700_000_000
ERROR_BYTES_MAX: Final = 65_536
MAJOR_END: Final = 32
"""No version is as high; text, which servers of other protocols send, begins here."""


def counted(data: bytes | str) -> bytes:
    """Return a STRING or BUFFER."""
    raw = data.encode() if isinstance(data, str) else data
    return struct.pack(">I", len(raw)) + raw


def authentication(name: bytes | str = "conform", key: bytes | None = None) -> bytes:
    """Return the first message of the handshake."""
    return b"\x00" + counted(name) + (b"" if key is None else counted(key))


def message(
    topic: str,
    payload: bytes = b"",
    *,
    kind: int = BUFFER,
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """Return what stands behind the message header of a push or a forward."""
    parts = [counted(part) for pair in headers for part in pair]
    head = struct.pack(">I", CREATED_AT) + counted(topic) + struct.pack(">H", len(headers))
    return head + b"".join(parts) + bytes((kind,)) + (counted(payload) if kind else b"")


def push(identifier: int, body: bytes) -> bytes:
    """Return a push."""
    return struct.pack(">IB", identifier, PUSH) + body


def about(identifier: int, kind: int, name: str) -> bytes:
    """Return a subscription, or the end of one."""
    return struct.pack(">IB", identifier, kind) + counted(name)


class LamaPeer(Peer):
    """A raw connection that reads answers and forwards."""

    def offered(self) -> bytes:
        """Expect a version offer, and return it: the highest and the lowest version."""
        offer = self.take(4, "four bytes, the supported versions")
        if offer == bytes(4):
            rest = self.take(1, "an answer")
            raise Skipped(f"the server refuses the client, with error {rest[0]}")
        if offer[:2] < offer[2:]:
            raise self.failed("a highest version that is not below the lowest", spelled(offer))
        if offer[2:] == bytes(2) or offer[0] >= MAJOR_END:
            raise self.failed(f"versions from 0.1 up and below {MAJOR_END}.0", spelled(offer))
        return offer

    def join(self, name: str = "conform") -> "LamaPeer":
        """Do the handshake, with the highest version of the offer."""
        self.send(authentication(name))
        offer = self.offered()
        self.send(offer[:2])
        return self

    def answered(self, identifier: int, error: int = 0) -> str:
        """Expect the answer to a message; return the text of its error."""
        self.expect(struct.pack(">IB", identifier, error))
        if not error:
            return ""
        (size,) = struct.unpack(">I", self.take(4, "the size of the error message"))
        if size > ERROR_BYTES_MAX:
            raise self.failed(f"an error message below {ERROR_BYTES_MAX} bytes", f"{size} bytes")
        text = self.take(size, f"an error message of {size} bytes")
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise self.failed("an error message in UTF-8", spelled(text)) from None

    def ask(self, data: bytes) -> None:
        """Send a message and expect that it is granted."""
        self.send(data).answered(int.from_bytes(data[:4], "big"))

    def forwarded(self, body: bytes) -> int:
        """Expect a forward of this message; return its id."""
        found = self.expect(4, bytes((FORWARD,)) + body)
        return int.from_bytes(found[:4], "big")


def joined(stage: Stage) -> LamaPeer:
    """Return a connection behind its handshake."""
    return stage.open(LamaPeer).join()


def enter(stage: Stage) -> None:
    """Have a client let in; raise Skipped if it is refused, or must have a key."""
    peer = stage.open(LamaPeer).send(authentication())
    try:
        peer.offered()
    except Failed:
        if peer.heard or peer.closed:
            raise
        peer.send(counted(b"conform")).offered()  # a server may wait for a key


def subscribed(stage: Stage, *names: str) -> LamaPeer:
    """Return a connection with subscriptions."""
    peer = joined(stage)
    for number, name in enumerate(names, 1):
        peer.ask(about(number, SUBSCRIBE, name))
    return peer


LAMAMQ: Final[Book[[]]] = Book()

# --- Handshake ------------------------------------------------------------------------------------


@LAMAMQ.case("Supported protocol version", "An authentification is answered with four bytes")
def the_server_offers_versions(stage: Stage) -> None:
    peer = stage.open(LamaPeer)
    peer.send(authentication()).offered()
    peer.expect_silence("four bytes and nothing more")


@LAMAMQ.case("Authentification", "An identity key may follow the name")
def a_key_may_follow_the_name(stage: Stage) -> None:
    stage.open(LamaPeer).send(authentication(key=b"key")).offered()


@LAMAMQ.case("Authentification", "A name may arrive byte by byte")
def a_name_arrives_byte_by_byte(stage: Stage) -> None:
    stage.open(LamaPeer).send_each(authentication()).offered()


@LAMAMQ.case("Authentification", "An auth_method other than 0 gets no offer")
def another_method_gets_no_offer(stage: Stage) -> None:
    stage.open(LamaPeer).send(authentication()).offered()
    peer = stage.open(LamaPeer)
    peer.send(b"\x01" + counted("conform"))
    try:
        if peer.is_closed():
            return
    except Failed:
        return  # a server may wait for more
    peer.expect(bytes(4), 1)


@LAMAMQ.case("Choose the protocol version to use", "The highest version offered can be chosen")
def the_highest_version_can_be_chosen(stage: Stage) -> None:
    joined(stage).ask(push(1, message(stage.name())))


@LAMAMQ.case("Choose the protocol version to use", "The lowest version offered can be chosen")
def the_lowest_version_can_be_chosen(stage: Stage) -> None:
    peer = stage.open(LamaPeer)
    offer = peer.send(authentication()).offered()
    peer.send(offer[2:]).ask(push(1, message(stage.name())))


# --- Push -----------------------------------------------------------------------------------------


@LAMAMQ.case("Push message", "A push is answered with its id and error 0")
def a_push_is_answered(stage: Stage) -> None:
    joined(stage).ask(push(7, message(stage.name(), b"21.5")))


@LAMAMQ.case("Structure - Message header", "Ids are the client's: any is answered with itself")
def any_id_is_answered_with_itself(stage: Stage) -> None:
    peer = joined(stage)
    for identifier in (1, 0x0102_0304, 0x7FFF_FFFF):
        peer.ask(push(identifier, message(stage.name())))


@LAMAMQ.case("Structure - Message header", "An id may be used again once it was answered")
def an_id_may_be_used_again(stage: Stage) -> None:
    peer = joined(stage)
    for _ in range(3):
        peer.ask(push(5, message(stage.name())))


@LAMAMQ.case("Structure - Message", "Payload types empty, string and buffer are taken")
def all_payload_types_are_taken(stage: Stage) -> None:
    peer = joined(stage)
    for number, (kind, payload) in enumerate(
        ((EMPTY, b""), (STRING, b"text"), (BUFFER, bytes(range(256))), (BUFFER, b"")), 1
    ):
        peer.ask(push(number, message(stage.name(), payload, kind=kind)))


@LAMAMQ.case("Structure - Message", "A message may have headers")
def a_message_may_have_headers(stage: Stage) -> None:
    headers = (("unit", "C"), ("empty", ""), ("unit", "twice"))
    joined(stage).ask(push(1, message(stage.name(), b"x", headers=headers)))


@LAMAMQ.case("Push message", "Each of many pushes in one write is answered")
def many_pushes_in_one_write_are_answered(stage: Stage) -> None:
    peer = joined(stage)
    numbers = range(1, 51)
    peer.send(b"".join(push(number, message(stage.name(), b"x")) for number in numbers))
    found = {peer.expect(4, b"\x00")[:4] for _ in numbers}
    wanted = {struct.pack(">I", number) for number in numbers}
    if found != wanted:
        missing = sorted(wanted - found)
        raise peer.failed(f"answers to ids 1 to {len(wanted)}", f"none to {missing[0].hex(' ')}")


@LAMAMQ.case("Push message", "A push may arrive byte by byte")
def a_push_arrives_byte_by_byte(stage: Stage) -> None:
    joined(stage).send_each(push(3, message(stage.name(), b"slow"))).answered(3)


@LAMAMQ.case("Basic types", "A payload of 200,000 bytes is taken")
def a_large_payload_is_taken(stage: Stage) -> None:
    joined(stage).ask(push(1, message(stage.name(), bytes(200_000))))


def refused(peer: LamaPeer, data: bytes) -> None:
    """Send wrong bytes, and expect an error or the end of the connection."""
    peer.send(data)
    if not peer.is_closed():
        peer.answered(int.from_bytes(data[:4], "big"), BAD_REQUEST)


@LAMAMQ.case("Errors: Bad request", "An unknown payload type is refused")
def an_unknown_payload_type_is_refused(stage: Stage) -> None:
    refused(joined(stage), push(9, message(stage.name(), b"x", kind=7)))


@LAMAMQ.case("Errors: Bad request", "An unknown message type is refused")
def an_unknown_message_type_is_refused(stage: Stage) -> None:
    refused(joined(stage), struct.pack(">IB", 9, 99) + counted("x"))


@LAMAMQ.case("Errors: Bad request", "A broken client does not disturb others")
def a_broken_client_disturbs_nobody(stage: Stage) -> None:
    peer, broken = joined(stage), joined(stage)
    broken.send(push(1, message(stage.name(), b"never whole"))[:-3]).close()
    peer.ask(push(1, message(stage.name(), b"goes on")))


# --- Penstock's profile ---------------------------------------------------------------------------


@LAMAMQ.case("Topic subscribe", "A subscription is answered with error 0", profile=True)
def a_subscription_is_answered(stage: Stage) -> None:
    subscribed(stage, stage.name())


@LAMAMQ.case("Forward message", "A push is forwarded with its content unchanged", profile=True)
def a_push_is_forwarded(stage: Stage) -> None:
    receiver, sender = subscribed(stage, stage.name()), joined(stage)
    body = message(stage.name(), b"21.5", headers=(("unit", "C"), ("unit", "twice")))
    sender.ask(push(1, body))
    receiver.forwarded(body)


@LAMAMQ.case("Forward message", "All payload types are forwarded as they came", profile=True)
def all_payload_types_are_forwarded(stage: Stage) -> None:
    receiver, sender = subscribed(stage, stage.name()), joined(stage)
    for number, (kind, payload) in enumerate(((EMPTY, b""), (STRING, b"text"), (BUFFER, b"\xff"))):
        body = message(stage.name(), payload, kind=kind)
        sender.ask(push(number + 1, body))
        receiver.forwarded(body)


@LAMAMQ.case("Forward message", "Ids of forwards have their top bit set", profile=True)
def forwards_have_ids_of_their_own(stage: Stage) -> None:
    receiver, sender = subscribed(stage, stage.name()), joined(stage)
    body = message(stage.name(), b"x")
    sender.ask(push(1, body))
    identifier = receiver.forwarded(body)
    if identifier < 0x8000_0000:
        raise receiver.failed("an id from 0x80000000 up", f"0x{identifier:08x}")


@LAMAMQ.case("Topic subscribe", "A wildcard matches one level", profile=True)
def a_wildcard_matches_a_level(stage: Stage) -> None:
    receiver, sender = subscribed(stage, stage.name("+/temp")), joined(stage)
    body = message(stage.name("a/temp"), b"this")
    sender.ask(push(1, message(stage.name("a/b/temp"), b"not this")))
    sender.ask(push(2, body))
    receiver.forwarded(body)


@LAMAMQ.case("Topic unsubscribe", "After unsubscribing nothing is forwarded", profile=True)
def unsubscribing_ends_forwards(stage: Stage) -> None:
    receiver, sender = subscribed(stage, stage.name("a"), stage.name("b")), joined(stage)
    receiver.ask(about(9, UNSUBSCRIBE, stage.name("a")))
    body = message(stage.name("b"), b"still")
    sender.ask(push(1, message(stage.name("a"), b"gone")))
    sender.ask(push(2, body))
    receiver.forwarded(body)


@LAMAMQ.case("Topic unsubscribe", "Unsubscribing what was not subscribed is refused", profile=True)
def unsubscribing_nothing_is_refused(stage: Stage) -> None:
    joined(stage).send(about(4, UNSUBSCRIBE, stage.name())).answered(4, BAD_REQUEST)


@LAMAMQ.case("Choose the protocol version to use", "A version not offered is refused", profile=True)
def a_version_not_offered_is_refused(stage: Stage) -> None:
    peer = stage.open(LamaPeer)
    peer.send(authentication()).offered()
    peer.send(b"\x09\x09").answered(0, BAD_REQUEST)
    peer.expect_close()


@LAMAMQ.case("Errors: Bad request", "After an error in a whole message it goes on", profile=True)
def an_error_does_not_close(stage: Stage) -> None:
    peer = joined(stage)
    bad = struct.pack(">IB", 3, SUBSCRIBE) + counted(b"\xff")
    peer.send(bad).answered(3, BAD_REQUEST)
    peer.ask(push(4, message(stage.name())))


@LAMAMQ.case("Basic types", "A little-endian client is answered in its order", profile=True)
def a_little_endian_client_is_answered(stage: Stage) -> None:
    peer = stage.open(LamaPeer)
    peer.send(b"\x00" + struct.pack("<I", 4) + b"conf")
    peer.send(peer.offered()[:2])
    topic = stage.name().encode()
    body = struct.pack("<II", CREATED_AT, len(topic)) + topic + b"\x00\x00\x00"
    peer.send(struct.pack("<IB", 0x0102_0304, PUSH) + body)
    peer.expect(struct.pack("<IB", 0x0102_0304, 0))


@LAMAMQ.case("Middleware register", "A middleware can refuse a push", profile=True)
def a_middleware_refuses_a_push(stage: Stage) -> None:
    middleware, sender = joined(stage), joined(stage)
    hook = counted(stage.name("hook")) + struct.pack(">IIBB", 0, 5000, 1, 16)
    condition = b"\x00" + counted(stage.name())
    middleware.ask(struct.pack(">IB", 1, REGISTER) + hook + struct.pack(">H", 1) + condition)
    sender.send(push(8, message(stage.name(), b"?", kind=STRING)))
    call = middleware.expect(4, b"\x01")[:4]
    middleware.send(call + b"\x04" + counted("no"))
    sender.answered(8, 4)


CASES: Final[tuple[Case, ...]] = LAMAMQ.cases()
"""In the order in which they are run."""

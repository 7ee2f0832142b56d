"""fleximq cases of sections 3.4 and 3.5: NOTIF and BCAST."""

from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.fleximq.encoding import (
    BCAST,
    BROKER,
    FIXED_BYTES,
    NOTIF,
    Frame,
    frame,
    routing,
    status,
)
from penstock.conform.fleximq.peer import FleximqPeer, joined
from penstock.conform.peer import check, equal, in_hex

__all__ = ["cases"]

HELLO: Final = b"\xa5hello"

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("3.4", "A notification reaches all clients of its routing, and no other")
def a_notification_reaches_its_targets(context: CaseContext) -> None:
    one, two, other, sender = (joined(context) for _ in range(4))
    sender.say(NOTIF, routing((one.number, "/a"), (two.number, "/b")), payload=HELLO)
    sender.settle()
    for receiver in (one, two):
        found = receiver.message(NOTIF)
        if (found.client_id, found.payload) != (sender.number, HELLO):
            raise receiver.failed(f"the NOTIF of client {sender.number}", in_hex(receiver.data))
    other.settle()


@cases.rule("3.5", "A broadcast reaches the other clients")
def a_broadcast_reaches_others(context: CaseContext) -> None:
    receivers, sender = [joined(context) for _ in range(2)], joined(context)
    sender.say(BCAST, payload=HELLO)
    for receiver in receivers:
        found = receiver.message(BCAST)
        if (found.client_id, found.payload) != (sender.number, HELLO):
            raise receiver.failed(f"the BCAST of client {sender.number}", in_hex(receiver.data))


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("3.4", "Each client of a NOTIF receives its own routing entry alone")
def each_client_of_a_notice_receives_its_entry(context: CaseContext) -> None:
    sender, first, second, unnamed = (joined(context) for _ in range(4))
    entries = [(first.number, "/alerts"), (second.number, "/news"), (first.number, "/again")]
    sender.say(NOTIF, status(299), routing(*entries), payload=b"\xcd\x00\x01")
    for peer, path in ((first, "/alerts"), (first, "/again"), (second, "/news")):
        expected = status(299) | routing((peer.number, path))
        equal(peer.frame(), Frame(NOTIF, sender.number, expected, b"\xcd\x00\x01"))
    for peer in (sender, first, second, unnamed):
        peer.settle()


@cases.profile("3.4", "A NOTIF without status or payload arrives unchanged")
def a_plain_notice_is_unchanged(context: CaseContext) -> None:
    sender, other = joined(context), joined(context)
    other.expect(sender.say(NOTIF, routing((other.number, "/x"))))


@cases.profile("5.1.4", "A NOTIF to unknown clients gets status 600 and reaches the others")
def a_notice_to_unknown_clients_gets_600(context: CaseContext) -> None:
    sender, other = joined(context), joined(context)
    sender.say(NOTIF, routing((999, ""), (other.number, "/x"), (998, "")))
    text = sender.expect_notice(600)
    check("999" in text and "998" in text, "a text with 998 and 999", text)
    equal(other.message(NOTIF).header, routing((other.number, "/x")))
    sender.settle()


@cases.profile("3.4", "A NOTIF to the broker gets no answer")
def a_notice_to_the_broker_gets_no_answer(context: CaseContext) -> None:
    sender = joined(context)
    sender.say(NOTIF, routing((BROKER, "/anything")), payload=b"\x01")
    sender.settle()


@cases.profile("3.4", "A client may notify itself")
def a_client_may_notify_itself(context: CaseContext) -> None:
    sender = joined(context)
    sender.expect(sender.say(NOTIF, routing((sender.number, "/me"))))


@cases.profile("3.5", "A BCAST reaches every client that has joined, unchanged")
def a_broadcast_reaches_every_client(context: CaseContext) -> None:
    sender, first, second = (joined(context) for _ in range(3))
    stranger = context.open(FleximqPeer)
    sent = sender.say(BCAST, status(200), {"x": 1}, payload=b"\xd9\x02hi", reserved=1)
    for peer in (sender, first, second):
        peer.expect(sent[:6] + bytes(16) + sent[22:])
    for peer in (sender, first, second):
        peer.settle()
    stranger.expect_silence(seconds=0.05)


@cases.profile("3.5", "A BCAST without any field is delivered")
def a_broadcast_without_fields_is_delivered(context: CaseContext) -> None:
    sender, other = joined(context), joined(context)
    data = frame(BCAST, sender.number)
    equal(len(data), FIXED_BYTES, "size")
    sender.send(data)
    other.expect(data)


@cases.profile("3.5", "Without echo a BCAST does not reach its sender", requires=Setup.NO_ECHO)
def without_echo_a_broadcast_does_not_reach_its_sender(context: CaseContext) -> None:
    sender, other = joined(context), joined(context)
    other.expect(sender.say(BCAST, payload=b"\x01"))
    sender.settle()

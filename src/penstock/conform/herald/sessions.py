"""herald cases about keep-alive and the end of a session."""

from typing import Final

from penstock.conform.case import CaseCollector
from penstock.conform.context import CaseContext
from penstock.conform.herald.encoding import (
    DISCONNECT,
    PING,
    PONG,
    publish,
)
from penstock.conform.herald.peer import CHANNEL, HeraldPeer, publisher, subscriber

__all__ = ["cases"]

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("PING (0x20)", "PING is answered with PONG")
def ping_is_answered(context: CaseContext) -> None:
    publisher(context).send(PING).expect(PONG)
    subscriber(context, CHANNEL).send(PING + PING).expect(PONG + PONG)


@cases.rule("PONG (0x21)", "PONG is not answered")
def pong_is_not_answered(context: CaseContext) -> None:
    publisher(context).send(PONG + PING).expect(PONG)


@cases.rule("DISCONNECT (0x04)", "DISCONNECT ends the connection")
def disconnect_ends_the_connection(context: CaseContext) -> None:
    publisher(context).send(DISCONNECT).expect_close()


@cases.rule("DISCONNECT (0x04)", "A message that was published before DISCONNECT is delivered")
def messages_before_disconnect_are_delivered(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"last") + DISCONNECT)
    receiver.message(CHANNEL, b"last")


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("DISCONNECT (0x04)", "DISCONNECT ends the connection without an answer, at any time")
def disconnect_is_not_answered(context: CaseContext) -> None:
    publisher(context).send(DISCONNECT + PING).expect_close()
    context.open(HeraldPeer).send(DISCONNECT).expect_close()


@cases.profile("DISCONNECT (0x04)", "A message before DISCONNECT arrives, and then the end comes")
def a_message_before_disconnect_arrives(context: CaseContext) -> None:
    receiver, sender = subscriber(context, CHANNEL), publisher(context)
    sender.send(publish(CHANNEL, b"last") + DISCONNECT).expect_close()
    receiver.message(CHANNEL, b"last")


@cases.profile("Security Considerations", "Whole frames before a cut frame count")
def whole_frames_before_a_cut_frame_count(context: CaseContext) -> None:
    receiver, other, sender = (
        subscriber(context, CHANNEL),
        publisher(context),
        publisher(context),
    )
    sender.send(publish(CHANNEL, b"whole") + publish(CHANNEL, b"cut short")[:9])
    receiver.message(CHANNEL, b"whole")
    sender.close()
    other.send(publish(CHANNEL, b"goes on"))
    receiver.message(CHANNEL, b"goes on")

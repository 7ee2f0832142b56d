"""The conformance cases of Lines."""

from typing import Final

from penstock.conform.case import CaseCollector, Suite
from penstock.conform.context import CaseContext
from penstock.conform.peer import Peer

__all__ = ["SUITE"]

cases: Final = CaseCollector[[]]()


def enter(context: CaseContext) -> Peer:
    """Connect a client."""
    peer = context.open(Peer)
    peer.send(b"hello conform\n").expect(b"ok\n")
    return peer


@cases.rule("1", "A hello is answered")
def hello_is_answered(context: CaseContext) -> None:
    enter(context)


@cases.rule("2", "A message reaches a subscriber, and its publisher is answered")
def a_message_is_delivered(context: CaseContext) -> None:
    subscriber, publisher = enter(context), enter(context)
    topic = context.topic()
    subscriber.send(b"sub " + topic + b"\n").expect(b"ok\n")
    publisher.send(b"pub " + topic + b" 3\na b\n").expect(b"ok\n")
    subscriber.expect(b"msg " + topic + b" ")


@cases.rule("3", "A word that is none is refused, and the connection goes on")
def unknown_words_are_refused(context: CaseContext) -> None:
    peer = enter(context)
    peer.send(b"sing\n").expect(b"err ")


SUITE: Final = Suite("lines", cases.cases(), enter)

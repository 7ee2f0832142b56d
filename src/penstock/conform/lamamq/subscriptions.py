"""LamaMQ cases about subscriptions."""

from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    push,
    subscribe,
    unsubscribe,
)
from penstock.conform.lamamq.peer import client, subscriber
from penstock.conform.peer import check, equal

__all__ = ["cases"]

NEARLY_STARTS: Final = {
    b"@ealiest": b"@earliest?",
    b"@-15min": b"@-15m?",
    b"@lats": b"@last?",
    b"@gruop=x": b"@group=x?",
    b"@group=x,ealiest": b"@group=x,earliest?",
}

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.profile("Topic subscribe", "A subscription is answered with error 0")
def a_subscription_is_answered(context: CaseContext) -> None:
    subscriber(context, context.topic())


@cases.profile("Topic subscribe", "+ and * match one level, # and > match all levels below")
def wildcards_match_levels(context: CaseContext) -> None:
    peer = client(context)
    for number, tail in enumerate(context.each((b"/+/z", b".*.z", b"/#", b"/>", b"/y/z"))):
        topic = context.topic(b"%d" % number)
        receiver = subscriber(context, topic + tail)
        peer.ask(push(1, topic + b"2/y/z", b"no"))
        peer.ask(push(2, topic + b"/y/z", b"yes"))
        receiver.expect_forward(topic + b"/y/z", b"yes")


@cases.profile("Topic subscribe", "+ does not match two levels")
def a_wildcard_matches_one_level(context: CaseContext) -> None:
    receiver, peer = subscriber(context, context.topic(b"+/temp")), client(context)
    peer.ask(push(1, context.topic(b"a/b/temp"), b"not this"))
    peer.ask(push(2, context.topic(b"a/temp"), b"this"))
    receiver.expect_forward(context.topic(b"a/temp"), b"this")


@cases.profile("Topic unsubscribe", "After unsubscribing not one message is forwarded")
def unsubscribing_ends_forwards(context: CaseContext) -> None:
    one, two = context.topic(b"1"), context.topic(b"2")
    receiver, peer = subscriber(context, one, two), client(context)
    peer.request(push(0, one, b"a"))
    receiver.expect_payloads(b"a")
    receiver.request(unsubscribe(0, one))
    peer.request(push(0, one, b"b"))
    peer.request(push(0, two, b"c"))
    receiver.expect_payloads(b"c")


@cases.profile("Topic subscribe", "A second subscription is answered and does not forward twice")
def a_second_subscription_changes_nothing(context: CaseContext) -> None:
    topic = context.topic(b"twice")
    receiver = subscriber(context, topic, topic, context.topic(b"twi+"), topic + b"/#")
    client(context).request(push(0, topic, b"a"))
    receiver.expect_payloads(b"a")
    receiver.settle()


@cases.profile("Topic subscribe", "A pattern that can match nothing gets error 2")
def a_pattern_that_matches_nothing_is_refused(context: CaseContext) -> None:
    peer = client(context)
    for pattern in context.each((b"", b"a/#/b", b">.x")):
        text = peer.request(subscribe(0, pattern), error=BAD_REQUEST)
        wanted = b"nothing can be subscribed to by"
        check(wanted in text, f"a text with '{wanted.decode()}'", text)
        peer.settle()


@cases.profile("Topic subscribe", "What is almost a start position gets error 2, with a hint")
def a_start_that_is_almost_one_is_refused(context: CaseContext) -> None:
    peer = client(context)
    for start, meant in context.each(NEARLY_STARTS.items()):
        text = peer.request(subscribe(0, context.topic() + start), error=BAD_REQUEST)
        wanted = b"did you mean " + meant
        check(wanted in text, f"a text with '{wanted.decode()}'", text)
        peer.settle()


@cases.profile(
    "Topic subscribe",
    "A forbidden subscription gets error 2 and brings nothing",
    requires=Setup.RULES,
)
def a_forbidden_subscription_is_refused(context: CaseContext) -> None:
    peer = client(context)
    text = peer.request(subscribe(0, b"hidden/x"), error=BAD_REQUEST)
    equal(text, b"guest may not subscribe to 'hidden/x'", "error message")
    peer.request(push(0, b"hidden/x"))
    peer.settle()


@cases.profile(
    "Topic subscribe", "A subscription above the limit gets error 2", requires=Setup.SUBSCRIPTIONS
)
def a_subscription_above_the_limit_is_refused(context: CaseContext) -> None:
    peer = subscriber(context, b"1", b"2")
    text = peer.request(subscribe(0, b"3"), error=BAD_REQUEST)
    equal(text, b"the limit of 2 subscriptions is reached", "error message")
    peer.request(unsubscribe(0, b"1"))
    peer.request(subscribe(0, b"3"))


@cases.profile("Topic unsubscribe", "Unsubscribing without a subscription gets error 2")
def unsubscribing_nothing_is_refused(context: CaseContext) -> None:
    topic = context.topic()
    peer = subscriber(context, topic)
    text = peer.request(unsubscribe(0, topic + b"/not"), error=BAD_REQUEST)
    equal(text, b"there is no subscription to '%s/not'" % topic, "error message")
    peer.request(unsubscribe(0, topic))
    peer.request(unsubscribe(0, topic), error=BAD_REQUEST)

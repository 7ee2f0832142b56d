"""fleximq cases of section 3.7: PING and PONG."""

import time
from collections.abc import Callable
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.fleximq.encoding import (
    BROKER,
    PING,
    PONG,
    REQ,
    Frame,
    frame,
    keepalive,
    request,
    routing,
)
from penstock.conform.fleximq.peer import STAMP, FleximqPeer, identifier_of, joined, status_of
from penstock.conform.peer import check, equal, in_hex

__all__ = ["cases"]

KEEPALIVE_SECONDS: Final = 0.25

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("3.7.1", "PING is answered with PONG and the same timestamp")
def ping_is_answered(context: CaseContext) -> None:
    peer = joined(context)
    for timestamp in (0, STAMP, 2**64 - 1):
        peer.settle(timestamp)


@cases.rule("3.7.1", "PING may suggest an interval")
def ping_may_suggest_an_interval(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(PING, {"keepalive": {"timestamp": STAMP, "interval": 30}})
    peer.message(PONG, "that answers PING")


@cases.rule("3.7.1", "PONG has no interval")
def pong_has_no_interval(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(PING, {"keepalive": {"timestamp": STAMP, "interval": 30}})
    pong = peer.message(PONG, "that answers PING")
    if pong.header.get("keepalive") != {"timestamp": STAMP}:
        raise peer.failed(f"a PONG with timestamp {STAMP} alone", in_hex(peer.data))


# --- Penstock's profile ---------------------------------------------------------------------------


@cases.profile("3.7.1", "PONG comes from client 1, with the timestamp alone")
def pong_to_the_byte(context: CaseContext) -> None:
    peer = joined(context)
    for timestamp in context.each((0, 127, STAMP, 2**64 - 1)):
        for more in ({}, {"interval": 30}):
            peer.say(PING, keepalive(timestamp, **more))
            equal(peer.frame(), Frame(PONG, BROKER, keepalive(timestamp), b""))


@cases.profile("3.7.1", "A PONG that answers no PING is ignored")
def a_pong_without_a_ping_is_ignored(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(PONG, keepalive(5))
    peer.settle()


def pinged(peer: FleximqPeer) -> int:
    """Expect the broker's PING; return its timestamp."""
    found = peer.message(PING)
    equal((found.client_id, found.payload, set(found.header)), (BROKER, b"", {"keepalive"}))
    fields = found.header["keepalive"]
    equal(set(fields), {"timestamp", "interval"}, "fields of keepalive")
    equal(fields["interval"], 1, "an interval, in whole seconds and rounded up, of")
    timestamp: int = fields["timestamp"]
    return timestamp


@cases.profile(
    "3.7.1",
    "A silent client gets a PING with the time and the interval",
    requires=Setup.KEEPALIVE,
)
def a_silent_client_gets_a_ping(context: CaseContext) -> None:
    peer = joined(context)
    before = time.time_ns() // 1_000_000
    found = pinged(peer)
    after = time.time_ns() // 1_000_000
    check(before <= found <= after, f"a time from {before} to {after} ms", found)


@cases.profile("3.7.1", "A client that answers PING stays connected", requires=Setup.KEEPALIVE)
def a_client_that_answers_stays(context: CaseContext) -> None:
    peer = joined(context)
    for _ in range(4):
        peer.say(PONG, keepalive(pinged(peer)))
    peer.settle()


@cases.profile(
    "3.7.1", "A client that is silent for three intervals is closed", requires=Setup.KEEPALIVE
)
def a_client_that_does_not_answer_is_closed(context: CaseContext) -> None:
    started = time.monotonic()
    peer = joined(context)
    pinged(peer)
    pinged(peer)
    while not peer.is_closed():
        peer.frame()
    seconds = time.monotonic() - started
    check(seconds >= 3 * KEEPALIVE_SECONDS, f"{3 * KEEPALIVE_SECONDS} s or more", seconds)


@cases.profile(
    "3.7.1",
    "A PONG that does not repeat the timestamp of a PING is no sign of life",
    requires=Setup.KEEPALIVE,
)
def a_pong_with_another_timestamp_does_not_count(context: CaseContext) -> None:
    peer = joined(context)
    expect_end(peer, lambda timestamp: (timestamp + 1, 0))


@cases.profile(
    "3.7.1",
    "A PONG that answers a PING a second time is no sign of life",
    requires=Setup.KEEPALIVE,
)
def a_pong_answers_once(context: CaseContext) -> None:
    peer = joined(context)
    first = pinged(peer)
    peer.say(PONG, keepalive(first))
    expect_end(peer, lambda _: (first,))


def expect_end(peer: FleximqPeer, answers: Callable[[int], tuple[int, ...]]) -> None:
    """Answer each PING with PONGs of these timestamps; expect the end of the connection."""
    for _ in range(6):
        if peer.is_closed():
            return
        for timestamp in answers(pinged(peer)):
            peer.say(PONG, keepalive(timestamp))
    raise peer.failed("the end of the connection after three intervals", "more PINGs")


@cases.profile("3.7.1", "A client that sends messages gets no PING", requires=Setup.KEEPALIVE)
def a_client_that_sends_gets_no_ping(context: CaseContext) -> None:
    peer = joined(context)
    spoke = started = time.monotonic()
    silence = 0.0  # the longest pause of this client
    was_pinged = False
    while spoke < started + 3 * KEEPALIVE_SECONDS:
        peer.say(PING, keepalive(0))
        while peer.frame().type == PING:
            was_pinged = True
        now = time.monotonic()
        silence = max(silence, now - spoke)
        spoke = now
    check(not was_pinged or silence > KEEPALIVE_SECONDS / 2, "no PING", "a PING")


@cases.profile("3.7.1", "Any byte of a client counts as activity", requires=Setup.KEEPALIVE)
def any_byte_counts_as_activity(context: CaseContext) -> None:
    peer = joined(context)
    message = frame(PING, peer.number, keepalive(1))
    for position in range(4):
        peer.send(message[position : position + 1]).message(PING)
    peer.send(message[4:]).message(PONG)


@cases.profile(
    "3.7.1",
    "A request to a client that went silent gets status 600",
    requires=Setup.KEEPALIVE,
)
def a_request_to_a_silent_client_gets_600(context: CaseContext) -> None:
    peer, silent = joined(context), joined(context)
    peer.say(REQ, routing((silent.number, "/")), request("q"))
    while (found := peer.frame()).type == PING:
        peer.say(PONG, keepalive(found.header["keepalive"]["timestamp"]))
    equal((status_of(found), identifier_of(found)), (600, "q"), "status and id")

"""fleximq cases of section 3.3: REQ and REP, and the services of the broker."""

import time
from typing import Any, Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.fleximq.encoding import (
    BROKER,
    NOTIF,
    PUB,
    REP,
    REQ,
    SUB,
    correlation,
    frame,
    pack,
    request,
    routing,
    status,
    topic,
)
from penstock.conform.fleximq.peer import FleximqPeer, identifier_of, joined, status_of
from penstock.conform.peer import check, equal, in_hex

__all__ = ["cases"]

HELLO: Final = b"\xa5hello"
REQUESTS_MAX: Final = 1024
LEAVE_SECONDS_MAX: Final = 5.0
STATUS_CODES: Final = (
    *(200, 201, 202, 204),
    *(400, 401, 403, 404, 405, 408, 409, 413, 429),
    *(500, 501, 502, 503, 504),
    *(600, 601, 602, 603, 604, 605),
)

cases: Final[CaseCollector[[]]] = CaseCollector()


@cases.rule("3.3", "A request reaches its target and the response its requester")
def a_request_is_answered(context: CaseContext) -> None:
    service, client = joined(context), joined(context)
    client.say(REQ, routing((service.number, "/unit")) | request("q-1"), payload=HELLO)
    asked = service.message(REQ, "with id q-1")
    if (asked.client_id, identifier_of(asked), asked.payload) != (client.number, "q-1", HELLO):
        raise service.failed(f"the REQ of client {client.number}", in_hex(service.data))
    answer = routing((client.number, "/unit")) | correlation("q-1") | {"status": 200}
    service.say(REP, answer, payload=b"\xa1C")
    reply = client.message(REP, "with id q-1")
    found = (reply.client_id, identifier_of(reply), status_of(reply), reply.payload)
    if found != (service.number, "q-1", 200, b"\xa1C"):
        raise client.failed(f"the REP of client {service.number}", in_hex(client.data))


@cases.rule("3.3", "A request carries the path of its routing to the target")
def a_request_carries_its_path(context: CaseContext) -> None:
    service, client = joined(context), joined(context)
    client.say(REQ, routing((service.number, "/a/path")) | request("q-2"))
    asked = service.message(REQ, "with path /a/path")
    if asked.header.get("routing") != routing((service.number, "/a/path"))["routing"]:
        raise service.failed("routing with path /a/path", in_hex(service.data))


@cases.rule("5.1", "A response may report any status")
def a_response_may_report_any_status(context: CaseContext) -> None:
    service, client = joined(context), joined(context)
    client.say(REQ, routing((service.number, "/")) | request("q-3"))
    service.message(REQ)
    service.say(REP, routing((client.number, "/")) | correlation("q-3") | {"status": 404})
    reply = client.message(REP, "with status 404")
    if status_of(reply) != 404:
        raise client.failed("a REP with status 404", in_hex(client.data))


@cases.rule("5.1", "Each status code of the specification reaches the requester")
def each_status_code_is_delivered(context: CaseContext) -> None:
    service, client = joined(context), joined(context)
    for code in context.each(STATUS_CODES):
        client.say(REQ, routing((service.number, "/")) | request(f"s-{code}"))
        service.message(REQ)
        reply = routing((client.number, "/")) | correlation(f"s-{code}") | {"status": code}
        service.say(REP, reply)
        found = client.message(REP, f"with status {code}")
        equal((identifier_of(found), found.header.get("status")), (f"s-{code}", code))


@cases.rule("3.3", "A response without a status arrives without one: it means 200")
def a_response_may_have_no_status(context: CaseContext) -> None:
    service, client = joined(context), joined(context)
    client.say(REQ, routing((service.number, "/")) | request("q-4"))
    service.message(REQ)
    service.say(REP, routing((client.number, "/")) | correlation("q-4"))
    equal(status_of(client.message(REP)), 200, "a status of")


# --- Penstock's profile ---------------------------------------------------------------------------


def ask(asker: FleximqPeer, target: int, identifier: str, payload: bytes = b"") -> bytes:
    """Send a REQ; return its bytes."""
    return asker.say(REQ, routing((target, "/do")), request(identifier), payload=payload)


def answer(target: FleximqPeer, asker: int, identifier: str, payload: bytes = b"") -> bytes:
    """Send a REP; return its bytes."""
    return target.say(REP, routing((asker, "/do")), correlation(identifier), payload=payload)


@cases.profile("3.3", "A request and its response arrive unchanged")
def a_request_and_its_response_are_unchanged(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    target.expect(ask(asker, target.number, "01H2XQMGPE7ZPXXNKQD9XE8S6R", b"\xcd\x00\x07"))
    asker.expect(answer(target, asker.number, "01H2XQMGPE7ZPXXNKQD9XE8S6R", b"\xd9\x01x"))
    asker.settle()
    target.settle()


@cases.profile("3.3", "A status, unknown fields and a missing path arrive unchanged")
def fields_of_requests_are_unchanged(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    sent = asker.say(
        REQ, status(202), request("f"), {"x": 1}, routing((target.number, "")), reserved=1
    )
    target.expect(sent[:6] + bytes(16) + sent[22:])
    bare = {"routing": [{"client_id": asker.number}]}
    asker.expect(target.say(REP, status(404), correlation("f"), bare))


@cases.profile("3.3", "Responses may come in any order, and ids belong to their requester")
def responses_may_come_in_any_order(context: CaseContext) -> None:
    one, two, target = (joined(context) for _ in range(3))
    for asker in (one, two):
        for identifier in ("a", "b"):
            target.expect(ask(asker, target.number, identifier))
    for asker in (two, one):
        for identifier in ("b", "a"):
            asker.expect(answer(target, asker.number, identifier, pack(identifier)))
    one.settle()
    two.settle()


@cases.profile("3.3", "Three clients may send each other requests with one id")
def three_clients_may_ask_each_other(context: CaseContext) -> None:
    first, second, third = (joined(context) for _ in range(3))
    ring = ((first, second), (second, third), (third, first))
    for asker, target in ring:
        target.expect(ask(asker, target.number, "same"))
    for asker, target in ring:
        asker.expect(answer(target, asker.number, "same", pack(target.number)))
    for peer in (first, second, third):
        peer.settle()


@cases.profile("5.1.4", "A request to a client that does not exist gets status 600")
def a_request_to_no_client_gets_600(context: CaseContext) -> None:
    peer = joined(context)
    for number in context.each((0, 2, 999, 4_294_967_294, 4_294_967_295)):
        ask(peer, number, "q")
        peer.expect_refusal(600, "q")
        peer.settle()


@cases.profile("5.1.2", "A request under an id that still waits gets status 409")
def an_id_that_waits_gets_409(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    target.expect(ask(asker, target.number, "twin"))
    ask(asker, target.number, "twin")
    asker.expect_refusal(409, "twin")
    asker.expect(answer(target, asker.number, "twin"))
    target.expect(ask(asker, target.number, "twin"))
    asker.settle()


@cases.profile("5.1.2", "A response to no request gets status 404 and is not delivered")
def a_response_to_no_request_gets_404(context: CaseContext) -> None:
    asker, target, stranger = (joined(context) for _ in range(3))
    answer(target, asker.number, "made up")
    target.expect_notice(404)
    target.expect(ask(asker, target.number, "q"))
    answer(stranger, asker.number, "q")
    stranger.expect_notice(404)
    asker.expect(answer(target, asker.number, "q"))
    answer(target, asker.number, "q")
    target.expect_notice(404)
    answer(target, BROKER, "q")
    target.expect_notice(404)
    asker.settle()


@cases.profile("7.3.1", "A malformed response gets 400 or 602, and a sound one may follow")
def a_malformed_response_is_refused(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    target.expect(ask(asker, target.number, "m"))
    entry = (asker.number, "/do")
    for code, header in context.each(
        (
            (400, routing(entry) | request("m")),
            (400, routing(entry) | {"reqrep": {"type": "reply", "id": "m"}}),
            (602, {"routing": []} | correlation("m")),
            (602, routing(entry, entry) | correlation("m")),
        )
    ):
        target.say(REP, header)
        target.expect_refusal(code, "m")
    target.say(REP, routing(entry))
    target.expect_notice(400)
    asker.expect(answer(target, asker.number, "m"))
    asker.settle()


@cases.profile(
    "5.1.3", "A request without a response in time gets 504", requires=Setup.REQUEST_TIMEOUT
)
def a_request_without_a_response_gets_504(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    target.expect(ask(asker, target.number, "slow"))
    target.expect(ask(asker, target.number, "quick"))
    asker.expect(answer(target, asker.number, "quick"))
    asker.expect_refusal(504, "slow")
    asker.settle()


@cases.profile(
    "5.1.3", "A response that comes too late is ignored once", requires=Setup.REQUEST_TIMEOUT
)
def a_late_response_is_ignored_once(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    target.expect(ask(asker, target.number, "late"))
    asker.expect_refusal(504, "late")
    answer(target, asker.number, "late")
    target.settle()
    asker.settle()
    answer(target, asker.number, "late")
    target.expect_notice(404)


@cases.profile(
    "5.1.3", "An id may be used again after its time-out", requires=Setup.REQUEST_TIMEOUT
)
def an_id_may_be_used_again_after_its_time_out(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    target.expect(ask(asker, target.number, "again"))
    asker.expect_refusal(504, "again")
    target.expect(ask(asker, target.number, "again"))
    asker.expect(answer(target, asker.number, "again"))


@cases.profile("5.1.4", "When the target leaves, requests that wait get status 600")
def requests_to_a_client_that_leaves_get_600(context: CaseContext) -> None:
    one, two, other, target = (joined(context) for _ in range(4))
    target.expect(ask(one, target.number, "a"))
    target.expect(ask(one, target.number, "b"))
    target.expect(ask(two, target.number, "a"))
    other.expect(ask(two, other.number, "c"))
    target.close()
    found = [one.message(REP) for _ in range(2)]
    equal({(identifier_of(reply), status_of(reply)) for reply in found}, {("a", 600), ("b", 600)})
    two.expect_refusal(600, "a")
    two.expect(answer(other, two.number, "c"))
    one.settle()
    two.settle()


@cases.profile("3.3", "The response to a client that left is ignored")
def the_response_to_a_client_that_left_is_ignored(context: CaseContext) -> None:
    target, asker, watcher = (joined(context) for _ in range(3))
    target.expect(ask(asker, target.number, "bye"))
    asker.close()
    until = time.monotonic() + LEAVE_SECONDS_MAX
    while True:  # until the broker has noticed
        watcher.say(REQ, routing((BROKER, "/clients")), request("w"))
        listed = watcher.value(watcher.message(REP))
        if asker.number not in {entry["client_id"] for entry in listed["clients"]}:
            break
        check(time.monotonic() < until, "a list without the client that left", listed)
    answer(target, asker.number, "bye")
    target.settle()


@cases.profile("3.3", "A client may send a request to itself")
def a_client_may_ask_itself(context: CaseContext) -> None:
    peer = joined(context)
    peer.expect(ask(peer, peer.number, "me"))
    peer.expect(answer(peer, peer.number, "me"))


@cases.profile("5.1.2", "A request above 1,024 that wait gets status 429")
def too_many_requests_get_429(context: CaseContext) -> None:
    asker, target = joined(context), joined(context)
    header = routing((target.number, "/do"))
    asker.send(
        b"".join(
            frame(REQ, asker.number, header | request(str(number)))
            for number in range(REQUESTS_MAX + 1)
        )
    )
    asker.expect_refusal(429, str(REQUESTS_MAX))
    for number in range(REQUESTS_MAX):
        equal(identifier_of(target.message(REQ)), str(number), "id")
    asker.expect(answer(target, asker.number, "0"))
    target.expect(ask(asker, target.number, "one more"))


# --- The broker as client 1 -----------------------------------------------------------------------


def service(peer: FleximqPeer, path: str) -> Any:  # noqa: ANN401
    """Send a REQ to the broker; return the value of its REP with status 200."""
    peer.say(REQ, routing((BROKER, path)), request("s"))
    return peer.value(
        peer.reply(REP, BROKER, routing((peer.number, "")) | correlation("s") | status(200))
    )


@cases.profile("4.1.1", "/time answers with milliseconds since 1970")
def the_broker_tells_the_time(context: CaseContext) -> None:
    found = service(joined(context), "/time")
    equal(set(found), {"timestamp"}, "fields")
    now = time.time_ns() // 1_000_000
    check(abs(found["timestamp"] - now) < 60_000, f"about {now}, within a minute", found)


@cases.profile("4.1.1", "/topics lists a topic once it was published to")
def the_broker_lists_topics(context: CaseContext) -> None:
    peer = joined(context)
    check(context.name() not in service(peer, "/topics")["topics"], "no such topic", peer.data)
    peer.say(PUB, topic(context.name()))
    found = service(peer, "/topics")
    check(context.name() in found["topics"], f"{context.name()} in the list", found)
    equal(found["count"], len(found["topics"]), "count")


@cases.profile("4.1.1", "/clients lists clients with their protocol and subscriptions")
def the_broker_lists_clients(context: CaseContext) -> None:
    peer, other = joined(context).subscribe("a", "b"), joined(context)
    found = service(peer, "/clients")
    equal(found["count"], len(found["clients"]), "count")
    entries = {entry["client_id"]: entry for entry in found["clients"]}
    for number, subscriptions in ((peer.number, 2), (other.number, 0)):
        check(number in entries, f"client {number} in the list", found)
        entry = entries[number]
        equal((entry["protocol"], entry["subscriptions"]), ("fleximq", subscriptions))


@cases.profile("4.1.1", "/stats counts the messages of each protocol", requires=Setup.LOG)
def the_broker_counts_messages(context: CaseContext) -> None:
    peer = joined(context)
    before = service(peer, "/stats")
    peer.subscribe("services/stats")
    for _ in range(3):
        peer.expect(peer.say(PUB, topic("services/stats")))
    peer.expect(peer.say(NOTIF, routing((peer.number, "/"))))
    peer.say(SUB)
    peer.expect_notice(400)
    after = service(peer, "/stats")  # which is a message too
    for name, more in context.each(
        (("messages_received", 5), ("messages_sent", 4), ("frames_rejected", 1))
    ):
        equal(after[name]["fleximq"] - before[name]["fleximq"], more, "a difference of")
    check(after["clients"] >= 1 and after["topics"] >= 1, "a client and a topic", after)


@cases.profile("4.1.1", "A REQ to the broker with a path that no client serves gets status 503")
def a_path_that_no_client_serves_gets_503(context: CaseContext) -> None:
    peer = joined(context)
    for path in context.each(("", "/", "/topics/", "topics", "/TIME", "/secrets")):
        peer.say(REQ, routing((BROKER, path)), request("s"))
        peer.expect_refusal(503, "s")
        peer.settle()


@cases.profile("2.2.2", "A REQ whose routing entry has no client_id goes to the broker")
def a_request_without_a_client_id_goes_to_the_broker(context: CaseContext) -> None:
    peer = joined(context)
    for entry in context.each(({"path": "/time"}, {"path": "/time", "client_id": None})):
        peer.say(REQ, {"routing": [entry]}, request("s"))
        equal(status_of(peer.message(REP, "with id s")) or 200, 200, "status")
    peer.say(REQ, {"routing": [{"path": "/secrets"}]}, request("s"))
    peer.expect_refusal(503, "s")
    peer.settle()


@cases.profile("2.2.2", "A strict broker refuses a REQ without a client_id", requires=Setup.STRICT)
def a_request_without_a_client_id_is_refused_by_a_strict_broker(context: CaseContext) -> None:
    peer = joined(context)
    for entry in context.each(({"path": "/time"}, {"path": "/time", "client_id": None})):
        peer.say(REQ, {"routing": [entry]}, request("s"))
        peer.expect_refusal(602, "s")
        peer.settle()


@cases.profile("2.2.2", "NOTIF, REP and PUB without a client_id are refused")
def only_a_request_may_lack_a_client_id(context: CaseContext) -> None:
    peer = joined(context)
    missing = {"routing": [{"path": "/time"}]}
    for kind, more in context.each(((NOTIF, {}), (REP, correlation("s")), (PUB, topic("t")))):
        peer.say(kind, missing, more)
        (peer.expect_refusal(602, "s") if kind == REP else peer.expect_notice(602))
    peer.settle()


@cases.profile(
    "4.1.1", "/topics lists no topic that the client may not use", requires=Setup.ALLOW_LIST
)
def forbidden_topics_are_not_listed(context: CaseContext) -> None:
    peer = joined(context)
    peer.say(PUB, topic("out/1"))
    equal(service(peer, "/topics")["topics"], ["out/1"])

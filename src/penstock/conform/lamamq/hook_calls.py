"""LamaMQ cases about middleware: hooks, their calls and their conditions."""

import time
from collections.abc import Callable
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BIG,
    BROKER_BIT,
    BUFFER,
    CHOICE,
    CONNECT,
    DISCONNECT,
    EMPTY,
    LITTLE,
    PUSHED,
    REFUSED,
    REGISTERED,
    STRING,
    SUBSCRIBED,
    TELL,
    TIMEOUT,
    UNREGISTERED,
    UNSUBSCRIBED,
    WAIT_OR_GO_ON,
    WAIT_OR_REFUSE,
    answer,
    authentication,
    has_header,
    header_is,
    push,
    register,
    topic_is,
    unregister,
)
from penstock.conform.lamamq.peer import LamaPeer, client, middleware, subscriber
from penstock.conform.peer import check, equal

__all__ = ["cases"]

SHORT_MS: Final = 60
CALLS: Final = 17_000
"""More than a middleware may leave unanswered if it has to consent."""

cases: Final[CaseCollector[[]]] = CaseCollector()


def hook_case(
    section: str, rule: str
) -> Callable[[Callable[[CaseContext], None]], Callable[[CaseContext], None]]:
    """Make a function a case that needs a server without other middleware."""
    return cases.profile(section, rule, requires=Setup.HOOKS)


@cases.profile("Middleware register", "A middleware can refuse a push")
def a_middleware_refuses_a_push(context: CaseContext) -> None:
    topic = context.topic()
    hook = register(0, context.topic(b"hook"), PUSHED, topic_is(topic))
    hooking, peer = middleware(context, hook), client(context)
    peer.send(push(8, topic, b"?", kind=STRING))
    hooking.answer(hooking.called(context.topic(b"hook"), b"push"), REFUSED, b"no")
    peer.expect_answer(8, REFUSED)


# --- Registering ----------------------------------------------------------------------------------


@hook_case("Middleware register", "Hooks of every type and strategy are registered and removed")
def hooks_of_every_type_are_registered(context: CaseContext) -> None:
    types = (CONNECT, DISCONNECT, PUSHED, SUBSCRIBED, UNSUBSCRIBED, REGISTERED, UNREGISTERED)
    for order in (BIG, LITTLE):
        peer = client(context, order=order)
        for hook_type, strategy in context.each(
            [(kind, how) for kind in types for how in (TELL, WAIT_OR_REFUSE, WAIT_OR_GO_ON)]
        ):
            peer.request(register(0, b"h", hook_type, strategy=strategy, order=order))
            peer.request(unregister(0, b"h", order=order))


@hook_case("Middleware register", "A hook name is unique among all clients")
def a_hook_name_is_unique(context: CaseContext) -> None:
    one, two = middleware(context, register(0, b"h", PUSHED)), client(context)
    for peer in (one, two):
        text = peer.request(register(0, b"h", CONNECT), error=BAD_REQUEST)
        equal(text, b"hook 'h': the name is taken", "error message")


@hook_case("Middleware unregister", "A client can unregister its own hooks alone")
def a_client_unregisters_its_own_hooks(context: CaseContext) -> None:
    one, two = middleware(context, register(0, b"h", PUSHED)), client(context)
    for name in context.each((b"h", b"unknown")):
        text = two.request(unregister(0, name), error=BAD_REQUEST)
        equal(text, b"hook '%s': not registered by this client" % name, "error message")
    one.request(unregister(0, b"h"))
    one.request(unregister(0, b"h"), error=BAD_REQUEST)
    two.request(register(0, b"h", PUSHED))


@hook_case("Middleware register", "A timeout above 60,000 ms gets error 2")
def a_timeout_above_the_limit_is_refused(context: CaseContext) -> None:
    peer = client(context)
    peer.request(register(0, b"h", PUSHED, timeout_ms=60_001), error=BAD_REQUEST)
    peer.request(register(0, b"h", PUSHED, timeout_ms=60_000))


@cases.profile(
    "Middleware register",
    "A client can hook only the topics that it may subscribe to",
    requires=Setup.RULES,
)
def a_hook_needs_the_right_to_subscribe(context: CaseContext) -> None:
    peer = client(context)
    peer.request(register(0, b"h", PUSHED), error=BAD_REQUEST)
    peer.request(register(0, b"h", CONNECT), error=BAD_REQUEST)
    peer.request(register(0, b"h", PUSHED, topic_is(b"hidden/x")), error=BAD_REQUEST)
    peer.request(register(0, b"h", PUSHED, topic_is(b"open/x")))


# --- Calls ----------------------------------------------------------------------------------------


@hook_case("Middleware register", "A call is the message behind four headers about it")
def a_call_is_the_message_behind_four_headers(context: CaseContext) -> None:
    own = ((b"unit", b"C"), (b"unit", b"F"))
    about = (
        (b"penstock-hook", b"units"),
        (b"penstock-event", b"push"),
        (b"penstock-client", b"meter-3"),
        (b"penstock-protocol", b"lamamq"),
    )
    contents = ((EMPTY, b""), (STRING, b"21.5"), (STRING, b""), (BUFFER, bytes(range(256))))
    for order, from_order in ((BIG, BIG), (BIG, LITTLE), (LITTLE, BIG), (LITTLE, LITTLE)):
        hooking = middleware(context, register(0, b"units", PUSHED, order=order), order=order)
        peer = client(context, b"meter-3", order=from_order)
        for kind, payload in context.each(contents):
            peer.send(
                push(
                    7,
                    b"plant/temp",
                    payload,
                    kind=kind,
                    headers=own,
                    created_at=0xFEDCBA98,
                    order=from_order,
                )
            )
            identifier = hooking.expect_forward(
                b"plant/temp", payload, kind=kind, headers=about + own, created_at=0xFEDCBA98
            )
            check(identifier >= BROKER_BIT, "an id from 0x80000000 up", f"0x{identifier:08x}")
            hooking.send(answer(identifier, order=order))
            peer.expect_answer(7)
        hooking.request(unregister(0, b"units", order=order))


@hook_case("Middleware register", "A message that middleware accepts is delivered unchanged")
def an_accepted_message_is_delivered(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED))
    receiver, peer = subscriber(context, b"t"), client(context)
    peer.send(push(1, b"t", b"x", kind=STRING, headers=[(b"k", b"v")]))
    call = hooking.called(b"h", b"push")
    receiver.settle()
    peer.expect_silence(seconds=0.05)
    hooking.answer(call)
    receiver.expect_forward(b"t", b"x", kind=STRING, headers=((b"k", b"v"),))
    peer.expect_answer(1)


@hook_case("Errors: Refused", "A message that middleware refuses gets error 4 with its text")
def a_refused_message_gets_error_4(context: CaseContext) -> None:
    receiver, peer = subscriber(context, b"t"), client(context)
    for strategy, error in context.each(
        [
            (strategy, error)
            for strategy in (WAIT_OR_REFUSE, WAIT_OR_GO_ON)
            for error in (1, 2, 3, 4)
        ]
    ):
        hooking = middleware(context, register(0, b"h", PUSHED, strategy=strategy))
        peer.send(push(1, b"t", b"x") + push(2, b"t", b"y"))
        hooking.answer(hooking.called(b"h", b"push"), error, "kein °F".encode())
        peer.expect_text(1, REFUSED, "kein °F".encode())
        hooking.answer(hooking.called(b"h", b"push"), error)
        peer.expect_text(2, REFUSED, b"refused by hook 'h'")
        receiver.settle()
        hooking.request(unregister(0, b"h"))


@hook_case("Errors: Refused", "An answer of middleware that is not valid refuses the message")
def an_invalid_answer_refuses(context: CaseContext) -> None:
    hooking, peer = middleware(context, register(0, b"h", PUSHED)), client(context)
    peer.send(push(1, b"t") + push(2, b"t"))
    hooking.answer(hooking.called(b"h", b"push"), 77, b"what")
    peer.expect_text(1, REFUSED, b"bad request: unknown error code 77")
    hooking.answer(hooking.called(b"h", b"push"), 4, b"\xff")
    text = peer.expect_answer(2, REFUSED)
    check(b"not UTF-8" in text, "a text with 'not UTF-8'", text)
    hooking.settle()


@hook_case("Middleware register", "Strategy 0 does not wait, and ignores the answer")
def strategy_tell_does_not_wait(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, strategy=TELL, timeout_ms=0))
    receiver, peer = subscriber(context, b"t"), client(context)
    peer.send(push(1, b"t", b"x") + push(2, b"t", b"y")).expect_answers(1, 2)
    calls = [hooking.called(b"h", b"push") for _ in range(2)]
    equal([call.payload for call in calls], [b"x", b"y"], "payloads")
    hooking.answer(calls[1], REFUSED, b"too late")
    hooking.settle()
    receiver.expect_payloads(b"x", b"y")


@hook_case("Errors: Timeout", "Strategy 1 refuses with error 3 when no answer comes in time")
def strategy_wait_or_refuse_times_out(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, timeout_ms=SHORT_MS))
    receiver, peer = subscriber(context, b"t"), client(context)
    peer.send(push(1, b"t", b"x")).expect_text(1, TIMEOUT, b"hook 'h' gave no answer")
    hooking.answer(hooking.called(b"h", b"push"))  # late: read as an answer, and ignored
    hooking.settle()
    receiver.settle()
    peer.send(push(2, b"t", b"y"))
    hooking.answer(hooking.called(b"h", b"push"))
    peer.expect_answer(2)
    receiver.expect_payloads(b"y")


@hook_case("Middleware register", "Strategy 2 goes on when no answer comes in time")
def strategy_wait_or_go_on_times_out(context: CaseContext) -> None:
    hook = register(0, b"h", PUSHED, strategy=WAIT_OR_GO_ON, timeout_ms=SHORT_MS)
    hooking = middleware(context, hook)
    receiver, peer = subscriber(context, b"t"), client(context)
    start = time.monotonic()
    peer.ask(push(1, b"t", b"x"))
    seconds = time.monotonic() - start
    check(seconds >= SHORT_MS / 1000, f"an answer after {SHORT_MS} ms", f"after {seconds} s")
    receiver.expect_payloads(b"x")
    hooking.answer(hooking.called(b"h", b"push"), REFUSED, b"late")
    hooking.settle()


@hook_case("Middleware register", "Hooks run by priority, then in the order of registration")
def hooks_run_by_priority(context: CaseContext) -> None:
    hooks = ((b"last", 9), (b"second", 5), (b"third", 5), (b"first", 0))
    hooking = middleware(
        context, *(register(0, name, PUSHED, priority=priority) for name, priority in hooks)
    )
    peer = client(context)
    peer.send(push(1, b"t"))
    for name in context.each((b"first", b"second", b"third", b"last")):
        call = hooking.called(name, b"push")
        hooking.expect_silence(seconds=0.02)
        hooking.answer(call)
    peer.expect_answer(1)


@hook_case("Middleware register", "A hook is called with messages that those before it accepted")
def a_hook_sees_accepted_messages(context: CaseContext) -> None:
    one = middleware(context, register(0, b"one", PUSHED, priority=1))
    two = middleware(
        context,
        register(0, b"two", PUSHED, priority=2),
        register(0, b"ear", PUSHED, priority=3, strategy=TELL),
    )
    peer = client(context)
    peer.send(push(1, b"t", b"x") + push(2, b"t", b"y") + push(3, b"t", b"z"))
    one.answer(one.called(b"one", b"push"), REFUSED, b"no")
    peer.expect_text(1, REFUSED, b"no")
    one.answer(one.called(b"one", b"push"))
    call = two.called(b"two", b"push")
    equal(call.payload, b"y", "payload")
    two.answer(call, REFUSED, b"never")
    peer.expect_text(2, REFUSED, b"never")
    one.answer(one.called(b"one", b"push"))
    two.answer(two.called(b"two", b"push"))
    peer.expect_answer(3)
    equal(two.called(b"ear", b"push").payload, b"z", "payload")


@hook_case("Errors: Timeout", "A message with no room for the headers of a call gets error 3")
def a_message_with_too_many_headers_gets_error_3(context: CaseContext) -> None:
    full = [(b"h", b"")] * 65_532
    hooking, peer = middleware(context, register(0, b"h", PUSHED)), client(context)
    peer.send(push(1, b"t", headers=full) + push(2, b"t", headers=full[:-1]))
    peer.expect_answer(1, TIMEOUT)
    call = hooking.called(b"h", b"push")
    equal(len(call.headers[4:]), len(full) - 1, "headers")
    hooking.answer(call)
    peer.expect_answer(2)


@hook_case("Middleware register", "A hook that must consent outlives its connection")
def a_hook_outlives_its_connection(context: CaseContext) -> None:
    hooking, peer = middleware(context, register(0, b"guard", PUSHED)), client(context)
    hooking.send(register(1, b"ear", PUSHED, strategy=WAIT_OR_GO_ON)).expect_answer(1)
    peer.send(push(1, b"t"))
    hooking.called(b"guard", b"push")
    hooking.close()
    peer.expect_answer(1, TIMEOUT)
    peer.send(push(2, b"t")).expect_answer(2, TIMEOUT)
    again = middleware(context, register(0, b"guard", PUSHED))
    peer.send(push(3, b"t"))
    again.answer(again.called(b"guard", b"push"))
    peer.expect_answer(3)
    again.send(unregister(4, b"guard")).expect_answer(4)
    peer.send(push(4, b"t")).expect_answer(4)


@cases.profile(
    "Middleware register",
    "A topic that needs the consent of a middleware takes nothing without one",
    requires=Setup.REQUIRED_HOOKS,
)
def a_required_hook_that_is_missing_refuses(context: CaseContext) -> None:
    guarded = b"guarded/" + context.topic()
    receiver, peer = subscriber(context, b"guarded/#"), client(context)
    peer.send(push(1, guarded, b"refused")).expect_answer(1, TIMEOUT)
    hooking = middleware(context, register(0, b"guard", PUSHED))
    peer.send(push(2, guarded, b"accepted"))
    hooking.answer(hooking.called(b"guard", b"push"))
    peer.expect_answer(2)
    receiver.expect_payloads(b"accepted")
    hooking.send(unregister(3, b"guard")).expect_answer(3)
    peer.send(push(4, guarded, b"refused")).expect_answer(4, TIMEOUT)
    peer.send(push(5, context.topic(), b"open")).expect_answer(5)
    receiver.settle()


@hook_case("Middleware register", "A middleware may answer thousands of calls late, all at once")
def a_middleware_may_answer_many_calls_late(context: CaseContext) -> None:
    hooking, peer = middleware(context, register(0, b"ear", PUSHED, strategy=TELL)), client(context)
    for first in range(0, CALLS, 250):
        identifiers = range(first, first + 250)
        peer.send(b"".join(push(identifier, b"t") for identifier in identifiers))
        peer.expect_answers(*identifiers)
    found = hooking.call_identifiers(b"ear", b"push", CALLS)
    equal(len(set(found)), CALLS, "different ids of calls:")
    hooking.send(b"".join(answer(identifier) for identifier in found))
    hooking.send(push(1, b"own")).expect_answer(1)


@hook_case("Middleware register", "A hook without its connection can be unregistered")
def a_hook_without_its_connection_can_be_unregistered(context: CaseContext) -> None:
    hooking, peer = middleware(context, register(0, b"guard", PUSHED)), client(context)
    hooking.close()
    peer.send(push(1, b"t")).expect_answer(1, TIMEOUT)
    peer.send(unregister(2, b"guard")).expect_answer(2)
    peer.send(push(3, b"t")).expect_answer(3)


@hook_case("Middleware register", "A middleware that guards connections can connect again")
def a_guard_of_connections_can_connect_again(context: CaseContext) -> None:
    hooking = context.open(LamaPeer).join(b"doorkeeper")
    hooking.send(register(1, b"door", CONNECT)).expect_answer(1)
    hooking.close()
    refused = context.open(LamaPeer).send(authentication(b"visitor"))
    refused.offered()
    refused.send(CHOICE).expect_answer(0, TIMEOUT)
    again = context.open(LamaPeer).join(b"doorkeeper").settle()
    again.send(unregister(2, b"door")).expect_answer(2)
    client(context).settle()


@hook_case("Middleware register", "A timeout of 0 is the default of one second")
def a_timeout_of_0_is_the_default(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, timeout_ms=0))
    peer = client(context).send(push(1, b"t"))
    call = hooking.called(b"h", b"push")
    hooking.answer(call)
    peer.expect_answer(1)
    peer.send(push(2, b"t")).expect_answer(2, TIMEOUT)


# --- Conditions -----------------------------------------------------------------------------------


@hook_case("Middleware register", "All conditions of a hook must hold")
def all_conditions_must_hold(context: CaseContext) -> None:
    unit, other, site = (b"unit", b"C"), (b"unit", b"F"), (b"site", b"")
    peer = client(context)
    for order in context.each((BIG, LITTLE)):
        conditions = (
            topic_is(b"t", order=order),
            header_is(b"unit", b"C", order=order),
            has_header(b"site", order=order),
        )
        hook = register(0, b"h", PUSHED, *conditions, strategy=TELL, order=order)
        hooking = middleware(context, hook, order=order)
        peer.send(
            push(1, b"t", b"1", headers=[unit])
            + push(2, b"t", b"2", headers=[site])
            + push(3, b"t/2", b"3", headers=[unit, site])
            + push(4, b"t", b"4", headers=[other, site])
            + push(5, b"t", b"5", headers=[site, other, unit])
            + push(6, b"t", b"6")
            + push(7, b"t", b"7", headers=[unit, site])
        )
        peer.expect_answers(*range(1, 8))
        for payload in (b"5", b"7"):
            equal(hooking.called(b"h", b"push").payload, payload, "payload")
        hooking.settle()
        hooking.request(unregister(0, b"h", order=order))


@hook_case("Middleware register", "A hook with two topics matches no message")
def a_hook_with_two_topics_matches_nothing(context: CaseContext) -> None:
    middleware(context, register(0, b"h", PUSHED, topic_is(b"a"), topic_is(b"b")))
    client(context).send(push(1, b"a") + push(2, b"b")).expect_answers(1, 2)


@hook_case("Middleware register", "A hook on one topic is called for that topic alone")
def a_hook_on_one_topic_is_called_for_it_alone(context: CaseContext) -> None:
    hook = register(0, b"h", PUSHED, topic_is(b"t/3"), strategy=TELL)
    hooking, receiver = middleware(context, hook), subscriber(context, b"#")
    peer = client(context)
    payloads = [b"%d" % number for number in range(90)]
    peer.send(b"".join(push(n, b"t/%d" % (n % 9), payloads[n]) for n in range(90)))
    peer.expect_answers(*range(90))
    receiver.expect_payloads(*payloads)
    for number in range(3, 90, 9):
        equal(hooking.called(b"h", b"push").payload, payloads[number], "payload")
    hooking.request(unregister(0, b"h"))
    peer.request(push(0, b"t/3"))
    hooking.settle()


@hook_case("Middleware register", "A hook is called for topics that were used before it")
def a_hook_is_called_for_topics_used_before(context: CaseContext) -> None:
    peer, hooking = client(context), client(context, b"middleware")
    peer.request(push(0, b"t"))
    hooking.request(register(0, b"h", PUSHED, topic_is(b"t")))
    peer.send(push(1, b"t"))
    hooking.answer(hooking.called(b"h", b"push"), REFUSED, b"no")
    peer.expect_answer(1, REFUSED)


@cases.profile("Middleware register", "Rules hold with hooks and without", requires=Setup.RULES)
def rules_hold_with_hooks(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, topic_is(b"t")))
    peer = client(context)
    peer.send(push(1, b"secret/x") + push(2, b"u") + push(3, b"t") + push(4, b"u"))
    peer.expect_answer(1, BAD_REQUEST)
    peer.expect_answer(2)
    hooking.answer(hooking.called(b"h", b"push"))
    peer.expect_answers(3, 4)
    hooking.request(unregister(0, b"h"))
    peer.send(push(5, b"secret/x") + push(6, b"t"))
    peer.expect_answer(5, BAD_REQUEST)
    peer.expect_answer(6)

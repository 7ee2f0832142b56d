"""LamaMQ cases about middleware: order, connections and subscriptions."""

from collections.abc import Callable
from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.lamamq.encoding import (
    BAD_REQUEST,
    BROKER_BIT,
    CHOICE,
    CONNECT,
    DISCONNECT,
    EMPTY,
    OFFER,
    PUSHED,
    REFUSED,
    REGISTERED,
    SUBSCRIBED,
    TELL,
    TIMEOUT,
    UNREGISTERED,
    UNSUBSCRIBED,
    WAIT_OR_GO_ON,
    WAIT_OR_REFUSE,
    answer,
    authentication,
    push,
    register,
    subscribe,
    topic_is,
    unregister,
    unsubscribe,
)
from penstock.conform.lamamq.peer import LamaPeer, client, middleware, subscriber
from penstock.conform.peer import equal

__all__ = ["cases"]

SHORT_MS: Final = 60

cases: Final[CaseCollector[[]]] = CaseCollector()


def hook_case(
    section: str, rule: str
) -> Callable[[Callable[[CaseContext], None]], Callable[[CaseContext], None]]:
    """Make a function a case that needs a server without other middleware."""
    return cases.profile(section, rule, requires=Setup.HOOKS)


# --- Order ----------------------------------------------------------------------------------------


@hook_case("Middleware register", "A client whose message waits for middleware keeps its order")
def a_client_that_waits_keeps_its_order(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, topic_is(b"hooked")))
    receiver, peer = subscriber(context, b"#"), client(context)
    peer.send(
        b"".join(push(n, b"hooked" if n % 3 == 0 else b"free", b"%d" % n) for n in range(30))
        + subscribe(30, b"late")
        + push(31, b"late", b"31")
    )
    for number in context.each(range(0, 30, 3)):
        call = hooking.called(b"h", b"push")
        equal(call.payload, b"%d" % number, "payload")
        hooking.answer(call, REFUSED if number == 15 else 0, b"no")
    for number in context.each(range(31)):
        peer.expect_answer(number, REFUSED if number == 15 else 0)
    peer.expect_payloads(b"31")
    peer.expect_answer(31)
    receiver.expect_payloads(*(b"%d" % n for n in (*range(15), *range(16, 30), 31)))


@hook_case("Middleware register", "Other clients go on while a message waits for middleware")
def other_clients_go_on(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, topic_is(b"hooked")))
    receiver, waiting, other = subscriber(context, b"#"), client(context), client(context)
    waiting.send(push(1, b"hooked", b"slow") + push(2, b"free", b"behind"))
    call = hooking.called(b"h", b"push")
    for number in context.each(range(50)):
        other.request(push(0, b"free", b"%d" % number))
        receiver.expect_payloads(b"%d" % number)
    hooking.answer(call)
    waiting.expect_answers(1, 2)
    receiver.expect_payloads(b"slow", b"behind")


@hook_case("Middleware register", "Answers of middleware may come in any order")
def answers_may_come_in_any_order(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED))
    one, two = client(context, b"1"), client(context, b"2")
    one.send(push(1, b"t"))
    first = hooking.called(b"h", b"push")
    two.send(push(2, b"t"))
    second = hooking.called(b"h", b"push")
    hooking.answer(second, REFUSED, b"two")
    two.expect_text(2, REFUSED, b"two")
    hooking.answer(first, REFUSED, b"one")
    one.expect_text(1, REFUSED, b"one")


@hook_case("Middleware register", "Hooks are not called for actions of their own client")
def hooks_are_not_called_for_their_own_client(context: CaseContext) -> None:
    types = (REGISTERED, UNREGISTERED, SUBSCRIBED, UNSUBSCRIBED, PUSHED)
    peer = middleware(context, *(register(0, b"%d" % kind, kind) for kind in types))
    peer.request(subscribe(0, b"own"))
    peer.send(push(1, b"own", b"x"))
    peer.expect_forward(b"own", b"x")
    peer.expect_answer(1)
    peer.request(unsubscribe(0, b"own"))
    peer.request(unregister(0, b"%d" % PUSHED))


@hook_case("Structure - Message header", "Middleware may push under ids that resemble a call's")
def middleware_may_push_under_any_id(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, topic_is(b"t")))
    peer = client(context)
    peer.send(push(1, b"t"))
    call = hooking.called(b"h", b"push")
    other = (call.identifier + 5) | BROKER_BIT
    hooking.send(push(other, b"u", b"x") + push(3, b"u")).expect_answers(other, 3)
    hooking.answer(call)
    peer.expect_answer(1)


@hook_case("Structure - Message header", "Answers and pushes of middleware may share a write")
def answers_and_pushes_may_share_a_write(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED, topic_is(b"t")))
    one, two = client(context), client(context)
    one.send(push(1, b"t"))
    two.send(push(1, b"t"))
    calls = [hooking.called(b"h", b"push") for _ in range(2)]
    hooking.send(
        push(1, b"u")
        + answer(calls[0].identifier)
        + push(2, b"u")
        + answer(calls[1].identifier, REFUSED, b"no")
        + push(3, b"u")
    )
    hooking.expect_answers(1, 2, 3)
    answers = sorted(peer.take(5, "an answer") for peer in (one, two))
    equal(answers, [answer(1), answer(1, REFUSED)[:5]], "answers")


# --- Connecting and leaving -----------------------------------------------------------------------


@hook_case("Middleware register", "A client may connect once middleware accepts it")
def a_client_connects_once_it_is_accepted(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", CONNECT))
    peer = context.open(LamaPeer).send(authentication(b"meter-3"))
    peer.expect(OFFER)
    peer.send(CHOICE + push(1, b"t"))
    call = hooking.called(b"h", b"connect")
    equal(call.about, (b"h", b"connect", b"meter-3", b"lamamq"), "a call about")
    equal((call.topic, call.kind, call.payload), (b"meter-3", EMPTY, b""), "a call with")
    peer.expect_silence(seconds=0.05)
    hooking.answer(call)
    peer.expect_answer(1)


@hook_case("Errors: Refused", "A client that middleware refuses gets error 4 for id 0 and the end")
def a_refused_client_gets_error_4(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", CONNECT))
    peer = client(context).send(push(1, b"t"))
    hooking.answer(hooking.called(b"h", b"connect"), REFUSED, b"not you")
    peer.expect_text(0, REFUSED, b"not you")
    peer.expect_close()


@hook_case("Errors: Timeout", "Without an answer a client is refused or accepted by the strategy")
def without_an_answer_the_strategy_decides(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", CONNECT, timeout_ms=SHORT_MS))
    peer = client(context)
    peer.expect_answer(0, TIMEOUT)
    peer.expect_close()
    hooking.called(b"h", b"connect")
    hooking.request(unregister(0, b"h"))
    hook = register(0, b"h", CONNECT, strategy=WAIT_OR_GO_ON, timeout_ms=SHORT_MS)
    hooking.request(hook)
    client(context).settle()


@hook_case("Middleware register", "Middleware is told when a client leaves, with any strategy")
def middleware_is_told_when_a_client_leaves(context: CaseContext) -> None:
    for strategy in context.each((TELL, WAIT_OR_REFUSE, WAIT_OR_GO_ON)):
        hooking = middleware(context, register(0, b"h", DISCONNECT, strategy=strategy))
        client(context, b"meter-3").settle().close()
        call = hooking.called(b"h", b"disconnect")
        equal(call.about, (b"h", b"disconnect", b"meter-3", b"lamamq"), "a call about")
        equal(call.topic, b"meter-3", "topic")
        hooking.answer(call, REFUSED, b"stay")
        hooking.request(unregister(0, b"h"))


# --- Subscriptions and registrations --------------------------------------------------------------


@hook_case("Topic subscribe", "A subscription counts once middleware accepts it")
def a_subscription_counts_once_it_is_accepted(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", SUBSCRIBED))
    peer = client(context, b"meter-3").send(subscribe(1, b"t/+"))
    call = hooking.called(b"h", b"subscribe")
    equal(call.about, (b"h", b"subscribe", b"meter-3", b"lamamq"), "a call about")
    equal(call.topic, b"t/+", "topic")
    hooking.request(push(0, b"t/1", b"early"))
    hooking.answer(call)
    peer.expect_answer(1)
    hooking.request(push(0, b"t/1", b"x"))
    peer.expect_payloads(b"x")
    peer.request(subscribe(0, b"t/+"))  # it has that already: there is no call
    hooking.settle()


@hook_case("Errors: Refused", "A subscription that middleware refuses gets error 4")
def a_refused_subscription_gets_error_4(context: CaseContext) -> None:
    hooking, peer = middleware(context, register(0, b"h", SUBSCRIBED)), client(context)
    peer.send(subscribe(1, b"t"))
    hooking.answer(hooking.called(b"h", b"subscribe"), REFUSED, b"no")
    peer.expect_text(1, REFUSED, b"no")
    hooking.request(push(0, b"t"))
    peer.send(unsubscribe(2, b"t")).expect_answer(2, BAD_REQUEST)


@hook_case("Topic subscribe", "Hooks are not called for a subscription that cannot be")
def hooks_are_not_called_for_a_wrong_subscription(context: CaseContext) -> None:
    hooking, peer = middleware(context, register(0, b"h", SUBSCRIBED)), client(context)
    peer.request(subscribe(0, b"a/#/b"), error=BAD_REQUEST)
    hooking.settle()


@hook_case("Topic unsubscribe", "Middleware is told of the end of a subscription")
def middleware_is_told_of_unsubscribing(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", UNSUBSCRIBED))
    peer = subscriber(context, b"t/+")
    peer.request(unsubscribe(0, b"t/+"))
    call = hooking.called(b"h", b"unsubscribe")
    equal(call.about, (b"h", b"unsubscribe", b"subscriber", b"lamamq"), "a call about")
    equal(call.topic, b"t/+", "topic")
    peer.request(unsubscribe(0, b"t/+"), error=BAD_REQUEST)
    hooking.settle()


@hook_case("Middleware register", "Middleware can refuse a hook, and is told of the end of one")
def middleware_can_refuse_a_hook(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"in", REGISTERED), register(0, b"out", UNREGISTERED))
    peer = client(context, b"new")
    peer.send(register(1, b"spy", PUSHED) + register(2, b"good", PUSHED, strategy=TELL))
    call = hooking.called(b"in", b"register")
    equal(call.about, (b"in", b"register", b"new", b"lamamq"), "a call about")
    equal(call.topic, b"spy", "topic")
    hooking.answer(call, REFUSED, b"no spies")
    peer.expect_text(1, REFUSED, b"no spies")
    hooking.answer(hooking.called(b"in", b"register"))
    peer.expect_answer(2)
    peer.request(unregister(0, b"spy"), error=BAD_REQUEST)
    peer.request(unregister(0, b"good"))
    equal(hooking.called(b"out", b"unregister").topic, b"good", "topic")


# --- Middleware that leaves -----------------------------------------------------------------------


@hook_case("Errors: Timeout", "A hook that is removed, or whose client leaves, gives no answer")
def a_hook_that_is_removed_gives_no_answer(context: CaseContext) -> None:
    for strategy, error, leaves in context.each(
        (
            (WAIT_OR_REFUSE, TIMEOUT, True),
            (WAIT_OR_REFUSE, TIMEOUT, False),
            (WAIT_OR_GO_ON, 0, True),
            (WAIT_OR_GO_ON, 0, False),
        )
    ):
        name = context.topic(b"%d%d" % (strategy, leaves))
        hook = register(0, name, PUSHED, strategy=strategy, timeout_ms=60_000)
        hooking, one, two = middleware(context, hook), client(context), client(context)
        one.send(push(1, b"t", b"x") + push(2, b"t"))
        two.send(push(1, b"t", b"y") + push(2, b"t"))
        calls = [hooking.called(name, b"push") for _ in range(2)]
        if leaves:
            hooking.close()
        else:
            hooking.send(unregister(9, name))
        stays = leaves and strategy == WAIT_OR_REFUSE
        for peer in (one, two):
            peer.expect_answer(1, error)
            peer.expect_answer(2, TIMEOUT if stays else 0)
        if stays:
            one.send(unregister(3, name)).expect_answer(3)
        if not leaves:
            hooking.expect_answer(9)
            hooking.answer(calls[0], REFUSED, b"late")
            hooking.settle()


@hook_case("Middleware register", "Hooks behind one whose client leaves are still called")
def hooks_behind_one_that_leaves_are_called(context: CaseContext) -> None:
    one = middleware(context, register(0, b"one", PUSHED, strategy=WAIT_OR_GO_ON))
    two = middleware(context, register(0, b"two", PUSHED, priority=1))
    peer = client(context).send(push(1, b"t"))
    one.called(b"one", b"push")
    one.close()
    two.answer(two.called(b"two", b"push"), REFUSED, b"no")
    peer.expect_text(1, REFUSED, b"no")


@hook_case("Middleware register", "A client that leaves while it waits disturbs no other")
def a_client_that_leaves_while_it_waits(context: CaseContext) -> None:
    hooking = middleware(context, register(0, b"h", PUSHED), register(0, b"c", CONNECT))
    newcomer = client(context)
    call = hooking.called(b"c", b"connect")
    newcomer.close()
    hooking.answer(call)
    hooking.settle()

"""Section 3.3: REQ and REP, and the two ways in which no answer comes."""

from collections.abc import Iterator

import pytest

from penstock.limits import REQUESTS_PENDING_MAX
from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.fleximq_bytes import frame
from tests.support.live import LiveBroker, Peer


@pytest.fixture
def pair(broker: LiveBroker) -> Iterator[tuple[Client, Client]]:
    with Client(broker.address) as asker, Client(broker.address) as target:
        yield asker, target


@pytest.fixture(scope="module")
def hasty() -> Iterator[LiveBroker]:
    """A broker whose clients wait a quarter of a second for their answers."""
    with LiveBroker() as live:
        live.call(lambda: setattr(live.server.broker.requests, "seconds_max", 0.25))
        yield live


def ask(asker: Client, target: int, identifier: str, payload: bytes = b"") -> bytes:
    return asker.say(fx.REQ, fx.routing((target, "/do")), fx.request(identifier), payload=payload)


def answer(target: Client, asker: int, identifier: str, payload: bytes = b"") -> bytes:
    return target.say(
        fx.REP, fx.routing((asker, "/do")), fx.correlation(identifier), payload=payload
    )


def test_0401_request_and_answer_pass_byte_for_byte(pair: tuple[Client, Client]) -> None:
    asker, target = pair
    target.expect(ask(asker, target.number, "01H2XQMGPE7ZPXXNKQD9XE8S6R", b"\xcd\x00\x07"))
    asker.expect(answer(target, asker.number, "01H2XQMGPE7ZPXXNKQD9XE8S6R", b"\xd9\x01x"))
    asker.settle()
    target.settle()


def test_0402_status_unknown_fields_and_a_missing_path_pass_too(
    pair: tuple[Client, Client],
) -> None:
    asker, target = pair
    sent = asker.say(
        fx.REQ, fx.status(202), fx.request("f"), {"x": 1}, fx.routing((target.number, "")),
        reserved=1,
    )  # fmt: skip
    target.expect(sent[:6] + bytes(16) + sent[22:])
    sent = target.say(
        fx.REP, fx.status(404), fx.correlation("f"), {"routing": [{"client_id": asker.number}]}
    )
    asker.expect(sent)


def test_0403_answers_may_come_in_another_order_and_ids_belong_to_their_requester(
    broker: LiveBroker,
) -> None:
    with (
        Client(broker.address) as one,
        Client(broker.address) as two,
        Client(broker.address) as target,
    ):
        for asker in (one, two):
            for identifier in ("a", "b"):
                target.expect(ask(asker, target.number, identifier))
        for asker in (two, one):
            for identifier in ("b", "a"):
                asker.expect(answer(target, asker.number, identifier, fx.pack(identifier)))
        one.settle()
        two.settle()


def test_0404_three_clients_ask_each_other(broker: LiveBroker) -> None:
    with (
        Client(broker.address) as first,
        Client(broker.address) as second,
        Client(broker.address) as third,
    ):
        ring = [(first, second), (second, third), (third, first)]
        for asker, target in ring:
            target.expect(ask(asker, target.number, "same"))
        for asker, target in ring:
            asker.expect(answer(target, asker.number, "same", fx.pack(target.number)))
        for client in (first, second, third):
            client.settle()


@pytest.mark.parametrize("number", [0, 2, 999, 4_294_967_294, 4_294_967_295])
def test_0405_a_request_to_nobody_is_600(pair: tuple[Client, Client], number: int) -> None:
    asker, _ = pair
    ask(asker, number, "q")
    asker.expect_refusal(600, "q")
    asker.settle()


def test_0406_a_request_to_a_client_of_another_protocol_is_600(
    broker: LiveBroker, pair: tuple[Client, Client]
) -> None:
    asker, _ = pair
    with Peer(broker.address) as herald:
        herald.send(bytes.fromhex("CAFE 02 00000004 01 09 01 73"))  # HANDSHAKE_SUB, channel 9
        acknowledged = herald.receive(16)
        number = int.from_bytes(acknowledged[8:16], "big")
        assert number >= 1000
        ask(asker, number, "q")
        asker.expect_refusal(600, "q")


def test_0407_an_id_that_waits_for_its_answer_already_is_409(
    pair: tuple[Client, Client],
) -> None:
    asker, target = pair
    target.expect(ask(asker, target.number, "twin"))
    ask(asker, target.number, "twin")
    asker.expect_refusal(409, "twin")
    asker.expect(answer(target, asker.number, "twin"))
    target.expect(ask(asker, target.number, "twin"))
    asker.settle()


def test_0408_an_answer_that_nobody_waits_for_is_404_and_reaches_nobody(
    broker: LiveBroker, pair: tuple[Client, Client]
) -> None:
    asker, target = pair
    answer(target, asker.number, "made up")
    target.expect_notice(404)
    target.expect(ask(asker, target.number, "q"))
    with Client(broker.address) as stranger:
        answer(stranger, asker.number, "q")
        stranger.expect_notice(404)
    asker.expect(answer(target, asker.number, "q"))
    answer(target, asker.number, "q")
    target.expect_notice(404)
    answer(target, fx.BROKER, "q")
    target.expect_notice(404)
    asker.settle()


def test_0409_a_request_that_is_not_answered_in_time_is_504(hasty: LiveBroker) -> None:
    with Client(hasty.address) as asker, Client(hasty.address) as target:
        target.expect(ask(asker, target.number, "slow"))
        target.expect(ask(asker, target.number, "quick"))
        asker.expect(answer(target, asker.number, "quick"))
        asker.expect_refusal(504, "slow")
        asker.settle()


def test_0410_an_answer_that_comes_too_late_is_ignored_once(hasty: LiveBroker) -> None:
    with Client(hasty.address) as asker, Client(hasty.address) as target:
        target.expect(ask(asker, target.number, "late"))
        asker.expect_refusal(504, "late")
        answer(target, asker.number, "late")
        target.settle()
        asker.settle()
        answer(target, asker.number, "late")
        target.expect_notice(404)


def test_0411_an_id_is_free_again_after_its_time(hasty: LiveBroker) -> None:
    with Client(hasty.address) as asker, Client(hasty.address) as target:
        target.expect(ask(asker, target.number, "again"))
        asker.expect_refusal(504, "again")
        target.expect(ask(asker, target.number, "again"))
        asker.expect(answer(target, asker.number, "again"))


def test_0412_a_target_that_leaves_is_600_to_those_who_wait(broker: LiveBroker) -> None:
    with (
        Client(broker.address) as one,
        Client(broker.address) as two,
        Client(broker.address) as other,
    ):
        with Client(broker.address) as target:
            target.expect(ask(one, target.number, "a"))
            target.expect(ask(one, target.number, "b"))
            target.expect(ask(two, target.number, "a"))
            other.expect(ask(two, other.number, "c"))
        assert {one.frame().header["reqrep"]["id"] for _ in range(2)} == {"a", "b"}
        two.expect_refusal(600, "a")
        two.expect(answer(other, two.number, "c"))
        one.settle()
        two.settle()


def test_0413_the_answer_to_a_client_that_left_is_ignored(broker: LiveBroker) -> None:
    with Client(broker.address) as target:
        with Client(broker.address) as asker:
            target.expect(ask(asker, target.number, "bye"))
            number = asker.number
        with Client(broker.address) as watcher:
            while True:  # until the broker has noticed
                watcher.say(fx.REQ, fx.routing((1, "/clients")), fx.request("w"))
                if number not in {c["client_id"] for c in watcher.frame().value["clients"]}:
                    break
        answer(target, number, "bye")
        target.settle()


def test_0414_a_client_may_ask_itself(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        client.expect(ask(client, client.number, "me"))
        client.expect(answer(client, client.number, "me"))


def test_0415_too_many_requests_at_a_time_are_429(pair: tuple[Client, Client]) -> None:
    asker, target = pair
    header = fx.routing((target.number, "/do"))
    asker.send(
        b"".join(
            frame(fx.REQ, asker.number, header | fx.request(str(i)))
            for i in range(REQUESTS_PENDING_MAX + 1)
        )
    )
    asker.expect_refusal(429, str(REQUESTS_PENDING_MAX))
    for i in range(REQUESTS_PENDING_MAX):
        assert target.frame().header["reqrep"]["id"] == str(i)
    asker.expect(answer(target, asker.number, "0"))
    target.expect(ask(asker, target.number, "one more"))

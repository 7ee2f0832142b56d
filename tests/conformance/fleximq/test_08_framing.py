"""Sections 2.1 and 7.1: where nothing more can be read, the broker says why and closes."""

import socket
import struct

from penstock.core.broker import BrokerSettings
from tests.conformance.fleximq.client import Client
from tests.support import fleximq_bytes as fx
from tests.support.fleximq_bytes import frame
from tests.support.live import LiveBroker

MESSAGE_BYTES_MAX = 16 * 1024 * 1024


def test_0801_a_header_above_64_kib_is_413_and_closes(broker: LiveBroker) -> None:
    for size in (65_537, 2**32 - 1):
        with Client(broker.address) as client:
            client.send(struct.pack(">BBI16xI", 1, fx.PUB, client.number, size))
            client.expect_notice(413)
            client.expect_close()


def test_0802_a_header_above_64_kib_in_join_is_413_by_a_rep_and_closes(
    broker: LiveBroker,
) -> None:
    with Client(broker.address, join=False) as client:
        client.send(struct.pack(">BBI16xI", 1, fx.JOIN, 0, 65_537))
        reply = client.frame()
        assert (reply.type, reply.client_id, reply.header) == (fx.REP, 0, fx.status(413))
        client.expect_close()


def test_0803_a_message_above_its_limit_is_413_before_its_bytes_come_and_closes(
    broker: LiveBroker,
) -> None:
    for payload_bytes in (MESSAGE_BYTES_MAX, 2**64 - 1):
        with Client(broker.address) as client:
            head = frame(fx.PUB, client.number, fx.topic("t"))[:-8]
            client.send(head + struct.pack(">Q", payload_bytes))
            client.expect_notice(413)
            client.expect_close()


def test_0804_a_request_above_its_limit_is_413_under_its_id_and_closes(
    broker: LiveBroker,
) -> None:
    with Client(broker.address) as client:
        head = frame(fx.REQ, client.number, fx.routing((1, "/time")) | fx.request("big"))[:-8]
        client.send(head + struct.pack(">Q", MESSAGE_BYTES_MAX))
        client.expect_refusal(413, "big")
        client.expect_close()


def test_0805_another_version_is_501_and_closes(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        client.send(frame(fx.PING, client.number, fx.keepalive(1), version=2))
        client.expect_notice(501)
        client.expect_close()


def test_0806_what_came_before_the_loss_has_its_effect(broker: LiveBroker) -> None:
    with Client(broker.address) as client, Client(broker.address) as other:
        other.subscribe("framing")
        message = frame(fx.PUB, client.number, fx.topic("framing"), b"\x01")
        client.send(message + b"\x02" + message)
        other.expect(message)
        client.expect_notice(501)
        client.expect_close()
        other.settle()


def test_0807_a_client_that_breaks_framing_takes_nobody_with_it(broker: LiveBroker) -> None:
    with Client(broker.address) as witness:
        for garbage in (b"\x02", b"\xff" * 100, bytes(100)):
            with Client(broker.address) as client:
                client.send(garbage)
                client.expect_notice(501)
                client.expect_close()
        witness.settle()


def test_0808_the_largest_header_and_the_smallest_message_are_taken(broker: LiveBroker) -> None:
    with Client(broker.address) as client:
        room = 65_536 - len(fx.pack(fx.keepalive(9))) - len(fx.pack("pad"))
        filler = fx.keepalive(9) | {"pad": bytes(room - 3)}
        header = fx.pack(filler)
        assert len(header) == 65_536
        client.send(frame(fx.PING, client.number, header))
        assert client.frame().header == fx.keepalive(9)
        client.send(frame(fx.BCAST, client.number))
        assert client.frame().type == fx.BCAST


def test_0809_answers_that_nobody_reads_do_not_pile_up() -> None:
    bound = 256 * 1024
    settings = BrokerSettings(out_buffer_bytes_max=bound)
    with (
        LiveBroker(settings=settings) as broker,
        Client(broker.address) as witness,
        Client(broker.address) as client,
    ):
        witness.subscribe("done")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for i in range(10):
            client.say(fx.PUB, fx.topic(f"{i}" * 60_000))
        question = fx.routing((1, "/topics")) | fx.request("q")  # the answer has 600 KiB
        client.send(frame(fx.REQ, client.number, question) * 50)
        client.say(fx.PUB, fx.topic("done"))
        assert witness.frame().type == fx.PUB
        session = broker.server.broker.sessions.get(client.number)
        assert session is not None
        waiting = broker.call(lambda: session.link.buffered)
        assert bound < waiting < bound + 1024 * 1024

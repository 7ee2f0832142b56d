"""The state that HTTP handlers share, of a broker that nobody has used yet."""

import contextlib
import socket

from penstock.core.broker import Broker
from penstock.memory import Purpose
from penstock.server.http.context import HttpContext
from penstock.server.http.protocol import HttpConnection
from tests.support.fakes import FakeClock
from tests.support.http_live import HttpBroker
from tests.support.kept_log import KeptLog


def test_a_new_broker_has_no_connections_and_no_client_for_http() -> None:
    context = HttpContext(Broker(log=KeptLog(), clock=FakeClock()))
    assert (context.connections(), context.client, context.requests) == (0, 0, {})
    assert context.not_ready() is None


def test_a_broker_that_starts_or_stops_is_not_ready() -> None:
    context = HttpContext(Broker(log=KeptLog(), clock=FakeClock()))
    context.starting = True
    assert context.not_ready() == "not all listeners take clients yet"
    context.starting, context.stopping = False, True
    assert context.not_ready() == "the broker is stopping"


def test_a_broker_without_a_log_has_no_metrics_of_one() -> None:
    with HttpBroker() as broker:
        text = broker.get("/metrics").body.decode()
    assert "penstock_log_appended_offset" in text
    assert "penstock_log_bytes" not in text
    assert "penstock_log_commits" not in text


def test_messages_that_wait_for_the_disk_count_as_memory() -> None:
    with HttpBroker() as broker:
        server, memory = broker.server, broker.server.broker.memory
        for size in (1 << 24, 1 << 20):
            server._log_bytes = size
            broker.call(server._count_memory)
            assert memory.fixed(Purpose.LOG) == size


def test_a_connection_that_is_evicted_is_closed() -> None:
    def connections() -> list[HttpConnection]:
        holders = [account.holder for account in broker.server.broker.memory._accounts]
        return [each for each in holders if isinstance(each, HttpConnection)]

    with (
        HttpBroker() as broker,
        socket.create_connection(("127.0.0.1", broker.web.port), 5) as peer,
    ):
        peer.sendall(b"GET /healthz HTTP/1.1\r\n")
        broker.until(connections)
        broker.call(connections()[0].evict)
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b""

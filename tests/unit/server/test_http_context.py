"""The state that HTTP handlers share, of a broker that nobody has used yet."""

from penstock.core.broker import Broker
from penstock.server.http.context import HttpContext
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

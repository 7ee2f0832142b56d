"""The fleximq gateway: what it counts, and what it refuses in which words."""

from typing import Any

import pytest

from penstock.conform.fleximq import encoding as fx
from penstock.core.broker import Broker
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.positions import ASK_PATH
from penstock.protocols.fleximq import FLEXIMQ
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog


class Connection:
    """A client of a broker in memory, in raw frames."""

    def __init__(self, broker: Broker | None = None, *, joins: bool = True) -> None:
        self.log = KeptLog()
        self.broker = broker or Broker(log=self.log, reader=self.log, clock=FakeClock())
        self.log.topics = self.broker.topics
        self.log.settle = self.broker.settle
        self.link = RecordingLink()
        self.link.handler = handler_for(self.broker, self.link, GatewayOptions(protocol=FLEXIMQ))
        self.number = 0
        if joins:
            self.send(fx.frame(fx.JOIN, 0))
            self.number = self.frames()[0].client_id

    def send(self, data: bytes) -> None:
        assert self.link.handler.received(memoryview(data)) == len(data)

    def say(self, kind: int, *fields: dict[str, Any], payload: bytes = b"") -> None:
        header = {key: value for field in fields for key, value in field.items()}
        self.send(fx.frame(kind, self.number, header, payload))

    def frames(self) -> list[fx.Frame]:
        """What the broker has written since the last call."""
        data = self.link.read()
        found = []
        while data:
            head = 26 + fx.header_length(data)
            end = head + 8 + int.from_bytes(data[head : head + 8], "big")
            found.append(fx.parse(data[:end]))
            data = data[end:]
        return found

    @property
    def rejected(self) -> int:
        return self.broker.counters.frames_rejected[FLEXIMQ]

    @property
    def sent(self) -> int:
        return self.broker.counters.messages_sent[FLEXIMQ]


def status_of(frame: fx.Frame) -> int:
    return int(frame.header["status"])


@pytest.mark.parametrize(
    ("joins", "data", "status"),
    [
        (False, fx.frame(fx.PING, 1001, fx.keepalive(1)), 401),
        (False, fx.frame(fx.PING, 0, fx.keepalive(1)), 400),
        (True, fx.frame(fx.JOIN, 0), 409),
        (True, fx.frame(fx.JOIN, 1000), 400),
    ],
    ids=["before JOIN", "without an id", "JOIN again", "JOIN with an id"],
)
def test_a_frame_out_of_sequence_is_counted_once_and_refused(
    *, joins: bool, data: bytes, status: int
) -> None:
    connection = Connection(joins=joins)
    connection.send(data)
    assert connection.rejected == 1
    assert [status_of(each) for each in connection.frames()] == [status]


def test_answers_of_the_broker_are_no_messages() -> None:
    connection = Connection()
    for number, path in enumerate((ASK_PATH, "/time", "/clients")):
        connection.say(fx.REQ, fx.routing((fx.BROKER, path)), fx.request(f"{number}"))
        connection.log.commit()
    answers = [each for each in connection.frames() if each.type == fx.REP]
    assert [status_of(each) for each in answers] == [200] * 3
    assert connection.sent == 0


def test_a_publish_that_the_log_refuses_is_told() -> None:
    connection = Connection()
    connection.log.available = False
    connection.say(fx.PUB, fx.topic("a"), payload=fx.pack("x"))
    (notice,) = connection.frames()
    assert (notice.type, status_of(notice)) == (fx.NOTIF, 503)
    assert "no space left on device" in notice.value


@pytest.mark.parametrize(("size", "status"), [(0, 200), (1, 400)])
def test_an_id_of_a_request_has_a_limit(size: int, status: int) -> None:
    connection = Connection()
    most: int = connection.link.handler._id_bytes_max  # type: ignore[attr-defined]
    connection.say(
        fx.REQ, fx.routing((fx.BROKER, "/time")), fx.request("é" * (most // 2) + size * "x")
    )
    connection.log.commit()
    assert [status_of(each) for each in connection.frames()] == [status]


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ([7, 5], "`delivery` is"),
        ([0, 2], "`delivery` is"),
        ([1, 1001], "`delivery` is"),
        ([1, 2, 3], "`delivery` is"),
        ([1, 1000], "this client is in no group"),
        ([1], "this client is in no group"),
        (1, "this client is in no group"),
    ],
)
def test_an_acknowledgment_names_from_one_to_a_thousand_messages(
    numbers: object, problem: str
) -> None:
    connection = Connection()
    route = fx.routing((fx.BROKER, "/ack"))
    connection.say(fx.REQ, route, fx.request("1"), payload=fx.pack(numbers))
    (answer,) = connection.frames()
    assert status_of(answer) == 400
    assert problem in answer.value


@pytest.mark.parametrize("more", [0, 1])
def test_a_client_that_has_not_joined_and_reads_no_refusals_is_disconnected(more: int) -> None:
    connection = Connection(joins=False)
    connection.link.buffered = connection.broker.settings.out_buffer_bytes_max + more
    connection.send(fx.frame(fx.PING, 0, fx.keepalive(1)))
    assert connection.link.aborted == bool(more)
    assert len(connection.frames()) == 1 - more

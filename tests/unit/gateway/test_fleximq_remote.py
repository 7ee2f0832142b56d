"""Requests of clients of other nodes: they are remembered up to a limit, or refused."""

import pytest

from penstock.core.access import ANYONE, Principal
from penstock.core.audiences import Encoding
from penstock.core.broker import Broker
from penstock.core.sessions import NODE_NUMBERS, Session
from penstock.gateway.fleximq import remote
from penstock.gateway.fleximq.records import record_of
from penstock.gateway.fleximq.remote import RemoteExchange, RemoteRequests
from penstock.ports import Receipt, Record
from penstock.protocols.fleximq import FLEXIMQ
from penstock.storage.memory import MemoryLog
from penstock.wire.fleximq import Header, Message, MessageType, ReqRep, ReqRepType, Routing
from tests.support.fakes import FakeClock, RecordingLink


class Remembering(MemoryLog):
    """A log that remembers the records that were appended."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []

    def append_record(self, record: Record) -> Receipt:
        self.records.append(record)
        return super().append_record(record)


def test_of_too_many_requests_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUESTS_REMOTE_MAX", 2)
    requests = RemoteRequests()
    for identifier in "abc":
        requests.add(identifier, requester=1, target=7)
    assert requests.pending_to(7) == 2
    taken = [requests.take(each, requester=1, target=7) for each in "abc"]
    assert taken == [False, True, True]


@pytest.mark.parametrize(
    ("is_there", "may_serve", "status"),
    [(False, True, 600), (True, False, 403), (True, True, None)],
)
def test_a_request_that_its_target_cannot_get_is_refused(
    *, is_there: bool, may_serve: bool, status: int | None
) -> None:
    log = Remembering()
    broker = Broker(log=log, clock=FakeClock())
    encoding = Encoding(FLEXIMQ, "big")
    link = RecordingLink()
    target = broker.open(encoding, link, principal=Principal("p", default=may_serve))
    asker = Session(
        NODE_NUMBERS + 7, encoding=encoding, link=RecordingLink(), name="x", principal=ANYONE
    )
    routing = (Routing(target.number + (not is_there), "/price"),)
    header = Header(routing=routing, reqrep=ReqRep(ReqRepType.REQUEST, "id"))
    message = Message(MessageType.REQ, asker.number, header, b"")
    RemoteExchange(broker).receive(record_of(asker, message, timestamp_us=1))
    refusals = [(each.correlation, each.status) for each in log.records]
    assert refusals == ([] if status is None else [("id", status)])
    assert bool(link.read()) == (status is None)
    assert broker.shared(RemoteRequests).pending_to(target.number) == (status is None)

"""fleximq and the log: what cannot be kept is 503, and what is kept of messages by number."""

import pytest

from penstock.conform.fleximq import encoding as fx
from penstock.conform.fleximq.encoding import Frame, frame
from penstock.model import Form, Kind
from penstock.ports import Record
from penstock.protocols.fleximq import FLEXIMQ
from tests.support.failing_log import Desk
from tests.support.fakes import RecordingLink

UNAVAILABLE = 503


class Room(Desk):
    """Two clients that have joined: `one`, the desk's own, and `two`."""

    def __init__(self) -> None:
        super().__init__()
        self.one = self._join(self.link)
        self.link_two = self.connect()
        self.two = self._join(self.link_two)

    def _join(self, link: RecordingLink) -> int:
        link.handler.received(memoryview(frame(fx.JOIN, 0)))
        return fx.parse(link.read()).client_id

    def say(self, message_type: int, *fields: dict[str, object], payload: bytes = b"") -> None:
        """Client one sends a message."""
        header = {key: value for field in fields for key, value in field.items()}
        self.send(frame(message_type, self.one, header, payload))

    def frames(self, link: RecordingLink | None = None) -> list[Frame]:
        """What a client was sent: client one if no link is given."""
        data = (link or self.link).read()
        found = []
        while data:
            size = fx.FIXED_BYTES + fx.header_length(data[:26])
            size += int.from_bytes(data[size - 8 : size], "big")
            found.append(fx.parse(data[:size]))
            data = data[size:]
        return found

    def notice(self) -> str:
        """Client one was sent one thing, a NOTIF with 503; return its text."""
        (found,) = self.frames()
        assert (found.type, found.client_id) == (fx.NOTIF, fx.BROKER)
        assert found.header == fx.routing((self.one, "/errors")) | fx.status(UNAVAILABLE)
        text = found.value
        assert isinstance(text, str)
        return text


@pytest.fixture
def room() -> Room:
    return Room()


# --- PUB ----------------------------------------------------------------------------------------


def test_a_run_that_the_log_does_not_take_is_one_notice_and_reaches_nobody(
    room: Room,
) -> None:
    room.say(fx.SUB, fx.topic("#"))
    room.log.full = True
    data = frame(fx.PUB, room.one, fx.topic("a"), b"\x01")
    room.send(data * 3)
    assert "no space left" in room.notice()
    room.log.full = False
    room.send(data)
    assert [found.type for found in room.frames()] == [fx.PUB]
    room.commit()
    assert room.frames() == []


def test_a_run_that_is_lost_is_one_notice(room: Room) -> None:
    data = frame(fx.PUB, room.one, fx.topic("a"), b"\x01")
    room.send(data * 3)
    room.commit()
    room.send(data * 3)
    room.fail()
    assert "cannot be kept" in room.notice()


def test_a_pong_does_not_wait_for_the_disk(room: Room) -> None:
    room.say(fx.PUB, fx.topic("a"))
    room.say(fx.PING, fx.keepalive(1))
    assert [found.type for found in room.frames()] == [fx.PONG]


@pytest.mark.parametrize("outcome", ["safe", "lost"])
def test_who_ends_is_closed_once_its_messages_are_settled(room: Room, outcome: str) -> None:
    room.say(fx.PUB, fx.topic("a"))
    room.link.handler.ended()
    assert not room.link.closed
    if outcome == "lost":
        room.fail()
        room.notice()
    else:
        room.commit()
        assert room.frames() == []
    assert room.link.closed


# --- What is kept of the rest -------------------------------------------------------------------


def kept(room: Room, sender: int) -> Record:
    """The one record in the log, which has what all records of clients have."""
    (record,) = room.log.records
    assert record.protocol is FLEXIMQ
    assert record.sender_name == str(sender)
    assert record.sender.number == sender
    assert record.timestamp_us == room.clock.now_us()
    assert record.private
    return record


def test_a_request_and_its_reply_are_kept_with_their_id(room: Room) -> None:
    room.say(fx.REQ, fx.routing((room.two, "/sum")), fx.request("r1"), payload=fx.pack([1, 2]))
    record = kept(room, room.one)
    assert record.kind is Kind.REQUEST
    assert (record.topic, record.correlation, record.status) == ("", "r1", None)
    assert record.headers == (("to", b"%d" % room.two), ("path", b"/sum"))
    assert (record.value, record.form) == (fx.pack([1, 2]), Form.MESSAGEPACK)
    assert [found.type for found in room.frames(room.link_two)] == [fx.REQ]
    room.log.records.clear()
    header = fx.routing((room.one, "")) | fx.correlation("r1") | fx.status(200)
    room.link_two.handler.received(memoryview(frame(fx.REP, room.two, header, fx.pack(3))))
    record = kept(room, room.two)
    assert record.kind is Kind.REPLY
    assert (record.correlation, record.status) == ("r1", 200)
    assert record.headers == (("to", b"%d" % room.one), ("path", b""))
    assert [found.type for found in room.frames()] == [fx.REP]


@pytest.mark.parametrize(
    ("payload", "value", "form"),
    [
        (b"", b"", Form.MESSAGEPACK),
        (fx.pack("hé"), "hé".encode(), Form.TEXT),
        (fx.pack(b"\x00\xff"), b"\x00\xff", Form.BINARY),
        (fx.pack({"a": 1}), fx.pack({"a": 1}), Form.MESSAGEPACK),
    ],
)
def test_a_value_is_kept_as_other_protocols_would_get_it(
    room: Room, payload: bytes, value: bytes, form: Form
) -> None:
    room.say(fx.BCAST, fx.status(299), payload=payload)
    record = kept(room, room.one)
    assert record.kind is Kind.BROADCAST
    assert (record.value, record.form, record.status) == (value, form, 299)
    assert record.headers == ()


def test_a_notice_is_kept_with_everyone_it_names(room: Room) -> None:
    room.say(fx.NOTIF, fx.routing((room.two, "/x"), (fx.BROKER, "/y"), (999, "/z")))
    record = kept(room, room.one)
    assert record.kind is Kind.NOTIFY
    to = [value for name, value in record.headers if name == "to"]
    paths = [value for name, value in record.headers if name == "path"]
    assert to == [b"%d" % room.two, b"1", b"999"]
    assert paths == [b"/x", b"/y", b"/z"]


def test_a_routed_publish_is_kept_under_its_topic_and_is_not_for_everyone(room: Room) -> None:
    room.say(fx.PUB, fx.topic("a/b"), fx.routing((room.two, "/x")), payload=fx.pack("v"))
    record = kept(room, room.one)
    assert (record.kind, record.topic, record.value) == (Kind.PUBLISH, "a/b", b"v")


@pytest.mark.parametrize(("path", "status"), [("/time", 200), ("/nothing", 503)])
def test_what_the_broker_is_asked_and_answers_is_kept(room: Room, path: str, status: int) -> None:
    room.say(fx.REQ, fx.routing((fx.BROKER, path)), fx.request("q"))
    request, reply = room.log.records
    assert (request.kind, reply.kind) == (Kind.REQUEST, Kind.REPLY)
    assert (request.correlation, reply.correlation) == ("q", "q")
    assert (reply.sender_name, reply.sender.number, reply.status) == ("1", 1, status)
    assert reply.headers[0] == ("to", b"%d" % room.one)
    (found,) = room.frames()
    assert found.header["status"] == status


def test_a_request_that_nobody_answers_is_kept_with_its_end(room: Room) -> None:
    room.say(fx.REQ, fx.routing((room.two, "/x")), fx.request("r"))
    room.link_two.handler.lost("closed")
    _, reply = room.log.records
    assert (reply.kind, reply.correlation, reply.status) == (Kind.REPLY, "r", 600)


def test_what_is_refused_is_not_kept(room: Room) -> None:
    room.say(fx.REQ, fx.routing((999, "/x")), fx.request("r"))
    room.say(fx.PUB, fx.topic("a/+"), fx.routing((room.two, "/x")))
    room.say(fx.REP, fx.routing((room.two, "")), fx.correlation("none"))
    assert [found.header["status"] for found in room.frames()] == [600, 400, 404]
    assert room.log.records == []


# --- What cannot be kept ------------------------------------------------------------------------


def test_a_request_that_cannot_be_kept_is_503_under_its_id_and_can_be_made_again(
    room: Room,
) -> None:
    room.log.full = True
    room.say(fx.REQ, fx.routing((room.two, "/x")), fx.request("r"))
    (found,) = room.frames()
    expected = fx.routing((room.one, "")) | fx.correlation("r") | fx.status(UNAVAILABLE)
    assert (found.type, found.header) == (fx.REP, expected)
    assert room.frames(room.link_two) == []
    room.log.full = False
    room.say(fx.REQ, fx.routing((room.two, "/x")), fx.request("r"))
    assert room.frames() == []
    assert len(room.frames(room.link_two)) == 1


def test_the_broker_is_not_asked_what_cannot_be_kept(room: Room) -> None:
    room.log.full = True
    room.say(fx.REQ, fx.routing((fx.BROKER, "/time")), fx.request("r"))
    (found,) = room.frames()
    assert (found.type, found.header["status"]) == (fx.REP, UNAVAILABLE)


def test_a_reply_that_cannot_be_kept_ends_the_request_for_both(room: Room) -> None:
    room.say(fx.REQ, fx.routing((room.two, "/x")), fx.request("r"))
    room.frames(room.link_two)
    room.log.full = True
    header = fx.routing((room.one, "")) | fx.correlation("r")
    room.link_two.handler.received(memoryview(frame(fx.REP, room.two, header)))
    (told,) = room.frames()
    assert (told.type, told.client_id) == (fx.REP, fx.BROKER)
    assert told.header["status"] == UNAVAILABLE
    assert told.header["reqrep"] == fx.correlation("r")["reqrep"]
    (found,) = room.frames(room.link_two)
    assert (found.type, found.header["status"]) == (fx.NOTIF, UNAVAILABLE)
    assert len(room.broker.requests) == 0


@pytest.mark.parametrize("kind", [fx.NOTIF, fx.BCAST, fx.PUB])
def test_what_cannot_be_kept_reaches_nobody(room: Room, kind: int) -> None:
    fields = {
        fx.NOTIF: [fx.routing((room.two, "/x"))],
        fx.BCAST: [],
        fx.PUB: [fx.topic("a"), fx.routing((room.two, "/x"))],
    }[kind]
    room.link_two.handler.received(memoryview(frame(fx.SUB, room.two, fx.topic("a"))))
    room.log.full = True
    room.say(kind, *fields)
    room.notice()
    assert room.frames(room.link_two) == []
    room.log.full = False
    room.say(kind, *fields)
    assert [found.type for found in room.frames(room.link_two)] == [kind]


@pytest.mark.parametrize("kind", [fx.REQ, fx.NOTIF])
def test_what_is_lost_after_it_was_passed_on_is_a_notice(room: Room, kind: int) -> None:
    fields = [fx.routing((room.two, "/x"))] + [fx.request("r")] * (kind == fx.REQ)
    room.say(kind, *fields)
    assert len(room.frames(room.link_two)) == 1
    assert room.frames() == []
    room.fail()
    assert "cannot be kept" in room.notice()


def test_an_offset_of_a_broker_without_history_is_603(room: Room) -> None:
    room.say(fx.SUB, fx.topic("a@earliest"))
    (found,) = room.frames()
    assert found.header["status"] == 603
    room.say(fx.SUB, fx.topic("a@nowhere"))
    assert room.frames() == []

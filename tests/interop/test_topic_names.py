"""Names that end in a start position: refused where topics are made, readable in older logs."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.model import Kind
from penstock.protocols.fleximq import FLEXIMQ
from tests.conformance.fleximq.client import Client as Fleximq
from tests.support import fleximq_bytes as fx
from tests.support import lamamq_bytes as lama
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import CREATE, FAILED, PUBLISH, RHEOS1, RHEOS2, SUBSCRIBE, SUCCESS
from tests.support.rheos_bytes import Client as Rheos
from tests.support.written_log import WrittenLog, message

OLD = "plant/7@earliest"
LONGEST = "n" * TOPIC_NAME_BYTES_MAX


@pytest.fixture
def older(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker with the log of a version that took any name."""
    log = WrittenLog(tmp_path)
    log.put(message(OLD, b"kept", kind=Kind.PUBLISH))
    log.close()
    with LiveBroker(data=tmp_path) as live:
        yield live


def test_a_name_of_an_older_log_can_be_read(older: LiveBroker) -> None:
    for pattern in (b"plant/7@earliest@#0", b"plant/+@earliest", b"#@earliest"):
        with lama.subscriber(older, pattern) as reader:
            found = reader.forwarded()
            assert (found.topic, found.payload) == (OLD.encode(), b"kept")
    with Rheos(older, RHEOS2) as reader:
        reader.request(SUBSCRIBE, OLD.encode() + b"@earliest")
        assert reader.ack().code == SUCCESS
        assert reader.delivery().payload == b"kept"


def test_a_name_of_an_older_log_takes_no_more_messages(older: LiveBroker) -> None:
    name = OLD.encode()
    with lama.subscriber(older, b"plant/#") as reader:
        with lama.client(older) as client:
            client.send(lama.push(1, name, b"no"))
            assert b"start position" in client.expect_answer(1, lama.BAD_REQUEST)
        for version in (RHEOS1, RHEOS2):
            with Rheos(older, version) as client:
                for opcode in (PUBLISH, CREATE):
                    client.request(opcode, name, b"no")
                    assert client.ack().code == FAILED
        with Fleximq(older.address) as client:
            client.say(fx.PUB, fx.topic(OLD), payload=b"\x01")
            client.expect_notice(400)
        reader.settle()


def test_a_topic_with_a_long_name_reaches_all_but_fleximq() -> None:
    with (
        LiveBroker() as live,
        lama.subscriber(live, b"#") as lamamq,
        Rheos(live, RHEOS2) as rheos,
        Fleximq(live.address) as fleximq,
    ):
        fleximq.subscribe("#")
        rheos.request(SUBSCRIBE, b"#")
        assert rheos.ack().code == SUCCESS
        with lama.client(live) as sender:
            sender.send(lama.push(1, LONGEST.encode(), b"1") + lama.push(2, b"short", b"2"))
            sender.expect(lama.answer(1) + lama.answer(2))
        assert [lamamq.forwarded().payload for _ in range(2)] == [b"1", b"2"]
        assert [rheos.delivery().payload for _ in range(2)] == [b"1", b"2"]
        found = fleximq.frame()
        assert (found.header["topic"], found.payload) == ("short", b"\xc4\x012")
        fleximq.settle()
        counters = live.server.broker.counters
        assert live.call(lambda: counters.messages_undeliverable[FLEXIMQ]) == 1


def test_the_parent_of_a_topic_is_its_creator_also_after_a_restart(tmp_path: Path) -> None:
    client_id = UUID("00112233-4455-6677-8899-aabbccddeeff")

    def parents(live: LiveBroker) -> list[bytes]:
        topics = live.server.broker.topics
        numbers = [topics.find(name) for name in ("made", "published")]
        return [topics.parent(number) for number in numbers if number is not None]

    with LiveBroker(data=tmp_path) as live:
        with Rheos(live, RHEOS1) as client:
            client.send(RHEOS1.request(CREATE, b"made", client=client_id.bytes))
            assert client.ack().code == SUCCESS
        with lama.client(live) as other:
            other.send(lama.push(1, b"published", b"x"))
            other.expect(lama.answer(1))
        assert live.call(lambda: parents(live)) == [client_id.bytes, b""]
    with LiveBroker(data=tmp_path) as live:
        assert live.call(lambda: parents(live)) == [client_id.bytes, b""]

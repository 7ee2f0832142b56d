"""However a stream is cut, it means the same; a client that is cut off disturbs nobody."""

from tests.support.live import LiveBroker
from tests.support.rheos_bytes import (
    BOB,
    CREATE,
    FAILED,
    INVALID_OPERATION,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Ack,
    Client,
    Delivery,
    Rheos,
    offset_of,
)

CODES = [SUCCESS, SUCCESS, FAILED, FAILED, SUCCESS, SUCCESS]
PAYLOADS = [b"\xfa\xac\x15", b"", b"last"]


def session(rheos: Rheos, topic: bytes) -> bytes:
    return b"".join(
        (
            rheos.request(SUBSCRIBE, topic),
            rheos.request(PUBLISH, topic, PAYLOADS[0]),
            rheos.packet(INVALID_OPERATION, b"\xff"),
            rheos.request(PUBLISH, topic + b"?", b"unknown"),
            rheos.request(PUBLISH, topic, PAYLOADS[1]),
            rheos.request(PUBLISH, topic, PAYLOADS[2]),
        )
    )


def play(broker: LiveBroker, rheos: Rheos, pieces: list[bytes]) -> tuple[list[Ack], list[Delivery]]:
    """Send the pieces one by one, each when the broker has had the time to look at the last."""
    with Client(broker, rheos) as client:
        for piece in pieces:
            client.send(piece)
            broker.call(lambda: None)
        return client.sort(acks=len(CODES), deliveries=len(PAYLOADS))


def check(found: tuple[list[Ack], list[Delivery]]) -> None:
    answers, messages = found
    assert [ack.code for ack in answers] == CODES
    assert [message.payload for message in messages] == PAYLOADS
    offsets = [offset_of(answers[number].identifier) for number in (1, 4, 5)]
    assert offsets == list(range(offsets[0], offsets[0] + 3))


def test_01_every_cut_of_a_session_gives_the_same(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
    stream = session(rheos, topic)
    for cut in range(len(stream) + 1):
        check(play(broker, rheos, [stream[:cut], stream[cut:]]))


def test_02_a_session_may_come_byte_by_byte(broker: LiveBroker, rheos: Rheos, topic: bytes) -> None:
    with Client(broker, rheos) as client:
        client.must(CREATE, topic)
    stream = session(rheos, topic)
    check(play(broker, rheos, [stream[at : at + 1] for at in range(len(stream))]))


def test_03_a_client_that_leaves_in_the_middle_of_a_request_disturbs_nobody(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as follower, Client(broker, rheos, identity=BOB) as other:
        other.must(CREATE, topic)
        follower.must(SUBSCRIBE, topic)
        whole = rheos.request(PUBLISH, topic, b"never whole")
        for cut in range(1, len(whole)):
            with Client(broker, rheos) as client:
                client.send(whole[:cut])
                broker.call(lambda: None)
            payload = b"%d" % cut
            other.must(PUBLISH, topic, payload)
            assert follower.delivery() == rheos.delivery(BOB, topic, payload)
        follower.expect_alive()


def test_04_half_a_request_of_one_client_is_not_mixed_with_another_s(
    broker: LiveBroker, rheos: Rheos, topic: bytes
) -> None:
    with Client(broker, rheos) as follower:
        follower.must(CREATE, topic)
        follower.must(SUBSCRIBE, topic)
        clients = [Client(broker, rheos, identity=bytes((number,)) * 16) for number in range(10)]
        wholes = [
            rheos.request(PUBLISH, topic, client.identity, client=client.identity)
            for client in clients
        ]
        for at in range(0, len(wholes[0]), 5):
            for client, whole in zip(clients, wholes, strict=True):
                client.send(whole[at : at + 5])
            broker.call(lambda: None)
        for client in clients:
            with client:
                assert client.ack().code == SUCCESS
        found = [follower.delivery() for _ in clients]
        assert sorted(found) == [
            rheos.delivery(client.identity, topic, client.identity) for client in clients
        ]

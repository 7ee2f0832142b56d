"""`penstock clients`."""

import json
from collections.abc import Iterator

import pytest

from tests.support import herald_bytes, lamamq_bytes
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker


@pytest.fixture
def broker() -> Iterator[HttpBroker]:
    with HttpBroker() as live:
        yield live


def test_clients_are_listed_with_what_they_sent_and_got(
    commands: Commands, broker: HttpBroker
) -> None:
    with (
        lamamq_bytes.subscriber(broker, b"t") as subscriber,
        herald_bytes.publisher(broker, 7) as publisher,
        lamamq_bytes.client(broker, b"a sender") as sender,
    ):
        sender.request(lamamq_bytes.push(0, b"t", b"x"))
        subscriber.forwarded()
        publisher.settle()
        done = commands.run("clients", "--url", broker.url)
        only = commands.run("clients", "--url", broker.url, "--protocol", "herald")
        slow = commands.run("clients", "--url", broker.url, "--slow")
        as_json = commands.run("clients", "--url", broker.url, "--json")
    assert (done.code, done.err) == (0, "")
    title, *lines, total = done.out.splitlines()
    assert title.split() == [
        "CONNECTION", "SUBSCRIPTIONS", "IN", "OUT", "WAITING", "BEHIND", "STATE", "PROTOCOL",
        "ADDRESS", "NAME",
    ]  # fmt: skip
    rows = {line.split()[-1]: line.split() for line in lines}
    assert rows["subscriber"][1:4] == ["1", "0", "1"]
    assert rows["sender"][1:4] == ["0", "1", "0"]
    assert rows["sender"][7:9] == ["live", "lamamq"]
    assert total == "3 clients"
    assert only.out.splitlines()[-1] == "1 client"
    assert slow.out == "0 clients\n"
    found = json.loads(as_json.out)["clients"]
    assert sorted(each["protocol"] for each in found) == ["herald", "lamamq", "lamamq"]
    assert {each["name"] for each in found} >= {"subscriber", "a sender"}


def test_a_protocol_that_there_is_not_is_named(commands: Commands, broker: HttpBroker) -> None:
    line = commands.run("clients", "--url", broker.url, "--protocol", "kafka").error_line()
    assert "'kafka' is none of rheos1, rheos2, fleximq, herald, lamamq" in line


def test_kick_disconnects_a_client(commands: Commands) -> None:
    with HttpBroker() as live, lamamq_bytes.subscriber(live, b"t") as peer:
        (client,) = live.get("/api/clients").json()["clients"]
        number = str(client["connection"])
        done = commands.run("clients", "kick", number, "--url", live.url)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"{number} disconnected: {client['name']}, ")
        peer.expect_close()
        live.until(lambda: not len(live.server.broker.sessions))
        again = commands.run("clients", "kick", number, "--url", live.url)
        assert (again.code, again.out) == (2, "")
        assert f"there is no client with connection {number}" in again.err

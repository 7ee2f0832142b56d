"""`penstock services`, and the list of the API that it shows."""

import asyncio
import json
from collections.abc import Iterator

import pytest

import penstock
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker


@pytest.fixture
def broker() -> Iterator[HttpBroker]:
    with HttpBroker() as live:
        yield live


def test_services_are_listed_with_their_servers(commands: Commands, broker: HttpBroker) -> None:
    url = "tcp://{}:{}".format(*broker.address)

    async def test() -> None:
        async with (
            penstock.connect(url, protocol="fleximq") as first,
            penstock.connect(url, protocol="fleximq") as second,
            penstock.connect(url, protocol="lamamq") as third,
        ):
            for client in (first, second):
                await client.register_service("/price", lambda _: None)
            for path in ("/price", "/a b"):
                await third.register_service(path, lambda _: None)
            await asyncio.to_thread(look)

    def look() -> None:
        done = commands.run("services", "--url", broker.url)
        assert (done.code, done.err) == (0, "")
        title, *rows, total = done.out.splitlines()
        assert title.split() == ["SERVERS", "SUBSCRIBERS", "PENDING", "NODES", "PATH"]
        assert [row.split(maxsplit=4) for row in rows] == [
            ["0", "1", "0", "0", "/a b"],
            ["2", "1", "0", "0", "/price"],
        ]
        assert total == "2 services"
        found = json.loads(commands.run("services", "--url", broker.url, "--json").out)
        assert found["services"][1] == {
            "path": "/price", "servers": 2, "subscribers": 1, "pending": 0,
            "nodes": [{"node": 0, "servers": 2, "subscribers": 1}],
        }  # fmt: skip
        page = broker.get("/api/services?limit=1").json()
        assert ([each["path"] for each in page["services"]], page["next"]) == (["/a b"], "/price")
        page = broker.get("/api/services?limit=1&after=/price").json()
        assert ([each["path"] for each in page["services"]], page["next"]) == (["/price"], None)
        text = broker.get("/metrics").body.decode()
        assert "penstock_services 1.0" in text

    asyncio.run(test())
    broker.until(lambda: not broker.server.broker.sessions)
    assert commands.run("services", "--url", broker.url).out == "0 services\n"

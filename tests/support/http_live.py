"""A live broker that answers HTTP, and the standard library's client to ask it."""

import asyncio
import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from penstock.gateway.options import GatewayOptions
from penstock.transport.addresses import Address, parse_address
from tests.support.live import LiveBroker

SECONDS = 30.0
JSON = {"Content-Type": "application/json"}


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        assert self.headers["Content-Type"] == "application/json", self
        return json.loads(self.body)

    def error(self) -> tuple[int, str, str]:
        """The status, code and message of an answer that says what is wrong."""
        found = self.json()
        assert list(found) == ["error"]
        assert sorted(found["error"]) == ["code", "message"]
        message = found["error"]["message"]
        assert message
        assert "\n" not in message
        return self.status, found["error"]["code"], message


class HttpBroker(LiveBroker):
    """`with HttpBroker() as broker: broker.get("/healthz")`."""

    web: Address

    def __init__(
        self,
        *,
        web: str = "ws://127.0.0.1:0/ws",
        web_options: GatewayOptions | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self._web = web
        self._web_options = web_options

    def __enter__(self) -> Self:
        super().__enter__()
        self.web = self.listen(self._web, self._web_options)
        return self

    def listen(self, url: str, options: GatewayOptions | None = None) -> Address:
        """Open another listener."""
        started = self.server.listen(parse_address(url), options=options)
        return asyncio.run_coroutine_threadsafe(started, self._loop).result(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web.port}"

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=SECONDS)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def publish(self, **message: Any) -> Answer:
        return self.ask("POST", "/api/publish", body=json.dumps(message).encode(), headers=JSON)

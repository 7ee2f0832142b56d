"""A live broker whose principals are reloaded between tests: all protocols, HTTP and Flight."""

import http.client
import json
from pathlib import Path
from typing import Any, Self

from penstock.flight.client import FlightClient
from penstock.gateway.options import GatewayOptions
from penstock.ports import NO_AUDIT, Audit
from penstock.server.config import Config
from penstock.server.credentials import Authenticator
from penstock.server.run import Running
from tests.support.flight import serve_tables
from tests.support.http_live import HttpBroker
from tests.support.settling_peers import FleximqPeer


class RightsBroker(HttpBroker):
    """`reload` applies the principals and rules of a configuration, as SIGHUP does."""

    def __init__(
        self, config: Config, data: Path, *, audit: Audit = NO_AUDIT, **others: Any
    ) -> None:
        self.authenticator = Authenticator(config)
        options = GatewayOptions(
            anonymous=self.authenticator.anonymous, authenticator=self.authenticator
        )
        super().__init__(options=options, web_options=options, data=data, audit=audit, **others)
        self._config = config
        self._folder = data
        self.running: Running
        self.endpoint = ""

    def __enter__(self) -> Self:
        super().__enter__()
        self.running = Running(self._config, self.server, self.authenticator)
        self.endpoint = serve_tables(
            self,
            self._folder,
            anonymous=self.authenticator.anonymous,
            verify=self.authenticator.verify_bearer,
        )
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.authenticator.close()

    def reload(self, config: Config) -> None:
        self.call(lambda: self.running.reload(config))

    def fleximq(self, token: str | None = None) -> FleximqPeer:
        return FleximqPeer(self.address, token=token)

    def flight(self, token: str | None = None) -> FlightClient:
        return FlightClient(self.endpoint, token=token)

    def status(self, token: str | None, method: str, path: str) -> int:
        """Send a request without a body; return the status of the answer."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=5)
        try:
            connection.request(method, path, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def http(self, token: str | None, path: str, **message: Any) -> tuple[int, Any]:
        """Ask for a path, or with a message publish it; return status and answer."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=5)
        try:
            if message:
                headers["Content-Type"] = "application/json"
                connection.request("POST", path, json.dumps(message), headers)
            else:
                connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

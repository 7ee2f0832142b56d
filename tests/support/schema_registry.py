"""A schema registry on loopback, with the part of Confluent's API that the pipeline uses."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class SchemaRegistry:
    """Serves `schemas` by path; `requests` are the paths that were asked for."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.status = 200
        self.wait = threading.Event()
        self.wait.set()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append(self.path)
                registry.authorizations.append(self.headers.get("Authorization"))
                registry.wait.wait(20)
                found = registry.schemas.get(self.path)
                status = registry.status if found is not None else 404
                body = found if isinstance(found, bytes) else json.dumps(found or {}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def put(self, identifier: int, schema: str, **more: Any) -> None:
        for form in ("", "?format=serialized"):
            self.schemas[f"/schemas/ids/{identifier}{form}"] = {"schema": schema, **more}

    def put_version(self, subject: str, version: int, schema: str, **more: Any) -> None:
        for form in ("", "?format=serialized"):
            path = f"/subjects/{subject}/versions/{version}{form}"
            self.schemas[path] = {"schema": schema, **more}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

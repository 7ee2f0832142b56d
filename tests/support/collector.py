"""A collector of OpenTelemetry on loopback: takes OTLP over HTTP and keeps the spans."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

SECONDS_MAX = 30.0


class Seen(NamedTuple):
    """A span that arrived; ids are hexadecimal, as in the header."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    service: str
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """`with Collector() as collector:` and send spans to `collector.url`."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(SECONDS_MAX)
        self._server.server_close()

    def until(self, condition: Callable[[dict[str, Seen]], Any]) -> dict[str, Seen]:
        """Wait until the last span of each name fulfils a condition; return them."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            found = {each.name: each for each in list(self.spans)}
            if condition(found):
                return found
            assert time.monotonic() < deadline, f"not in time: {found}"
            time.sleep(0.02)


def _spans(request: Any) -> list[Seen]:
    return [
        Seen(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _values(part.resource.attributes)["service.name"],
            span.status.code == 2,
            _values(span.attributes),
        )
        for part in request.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]


def _values(pairs: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in pairs}

"""The front of the Flight service: messages, connections and time are limited before gRPC."""

import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as pf
import pytest
import structlog

from penstock.core.access import Peer, Principal
from penstock.errors import AuthenticationFailed
from penstock.flight.client import FlightClient
from penstock.flight.errors import BadRequest, BadRows, InternalError, NoAnswer
from penstock.flight.protocol import OffsetAt, ReadRange
from penstock.limits import (
    FLIGHT_FIRST_BYTES_MAX,
    FLIGHT_FIRST_SECONDS_MAX,
    FLIGHT_MESSAGE_BYTES_MAX,
)
from penstock.server.flight import front
from penstock.server.flight.http2 import PREFACE
from penstock.transport.addresses import Address
from tests.support.flight import rows, serve_tables
from tests.support.live import LiveBroker
from tests.support.running import Running

MIB = 1 << 20
DESCRIPTOR = pf.FlightDescriptor.for_command(
    json.dumps({"writer": "w", "epoch": 0, "partition": 0}).encode()
)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path) as broker:
        yield broker


def connect(endpoint: str) -> socket.socket:
    host, _, port = endpoint.removeprefix("grpc://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def frame(kind: int, payload: bytes, *, stream: int = 1, flags: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def call(method: bytes) -> bytes:
    """The first bytes of a client that calls a method, without a token."""
    path = b"/arrow.flight.protocol.FlightService/" + method
    block = b"\x83\x86" + b"".join(
        literal(name, value)
        for name, value in (
            (b":path", path),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    return PREFACE + frame(4, b"", stream=0) + frame(1, block, flags=4)


def sent_until_refused(link: socket.socket, data: bytes, *, bytes_max: int) -> tuple[int, bytes]:
    """Send again and again; return how much was taken, and what was answered."""
    sent = 0
    answer = b""
    link.settimeout(0.2)
    deadline = time.monotonic() + 8
    while sent < bytes_max and time.monotonic() < deadline:
        try:
            sent += link.send(data)
        except TimeoutError:
            pass
        except OSError:
            break
    try:
        while part := link.recv(65_536):
            answer += part
    except OSError:
        pass
    return sent, answer


def put(
    client: pf.FlightClient,
    batches: Sequence[pa.RecordBatch],
    options: pa.ipc.IpcWriteOptions | None = None,
) -> None:
    """Stage rows as a client that is not ours does."""
    stream, answers = client.do_put(
        DESCRIPTOR, batches[0].schema, pf.FlightCallOptions(write_options=options)
    )
    try:
        for batch in batches:
            stream.write_batch(batch)
        stream.done_writing()
        answers.read()
    finally:
        stream.close()


@pytest.mark.parametrize("method", [b"DoAction", b"DoGet", b"DoPut", b"GetFlightInfo"])
def test_a_huge_message_is_refused_before_it_arrives(
    live: LiveBroker, tmp_path: Path, method: bytes
) -> None:
    endpoint = serve_tables(live, tmp_path, anonymous=None)
    with connect(endpoint) as link:
        link.sendall(call(method) + frame(0, struct.pack(">BI", 0, 300 * MIB)))
        sent, answer = sent_until_refused(link, frame(0, bytes(16_384)), bytes_max=32 * MIB)
    assert b"allowed are" in answer
    assert b"grpc-status" in answer
    assert sent < 300 * MIB  # it was not waited for


def test_before_authentication_a_message_is_small(
    live: LiveBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "FLIGHT_FIRST_SECONDS_MAX", 1.0)
    endpoint = serve_tables(live, tmp_path, anonymous=None)
    with connect(endpoint) as link:
        size = FLIGHT_FIRST_BYTES_MAX + 1
        link.sendall(call(b"DoAction") + frame(0, struct.pack(">BI", 0, size)))
        _, answer = sent_until_refused(link, frame(0, bytes(16_384)), bytes_max=64 * MIB)
    assert b"before any other call" in answer


def test_a_message_that_grpc_would_decompress_is_refused(live: LiveBroker, tmp_path: Path) -> None:
    with connect(serve_tables(live, tmp_path)) as link:
        link.sendall(call(b"DoAction") + frame(0, struct.pack(">BI", 1, 10)))
        _, answer = sent_until_refused(link, b"", bytes_max=0)
    assert b"compressed messages are not accepted" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        PREFACE + frame(0, b"x" * 9, flags=8),
        PREFACE + frame(1, bytes(70_000), flags=4),
        PREFACE + frame(4, bytes(60_000), stream=0),
    ],
    ids=["http1", "padding", "headers", "settings"],
)
def test_what_no_client_sends_ends_the_connection(
    live: LiveBroker, tmp_path: Path, data: bytes
) -> None:
    with connect(serve_tables(live, tmp_path)) as link, contextlib.suppress(ConnectionError):
        link.settimeout(FLIGHT_FIRST_SECONDS_MAX / 2)  # a silent connection is closed later
        link.sendall(data)
        while link.recv(4096):
            pass  # the SETTINGS of the server, then the end; a time-out fails


def test_a_batch_above_the_limit_is_an_error_by_name_and_ours_are_sent_in_parts(
    live: LiveBroker, tmp_path: Path
) -> None:
    endpoint = serve_tables(live, tmp_path)
    large = rows([bytes(4 * MIB)] * (FLIGHT_MESSAGE_BYTES_MAX // (4 * MIB) + 1))
    with pf.FlightClient(endpoint) as raw, pytest.raises(pa.ArrowException, match="allowed are"):
        put(raw, [large])
    with FlightClient(endpoint) as client:
        assert client.stage([large], writer="w", epoch=0, partition=0) == len(large)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (pa.ipc.IpcWriteOptions(compression="zstd"), "compressed record batches"),
        (pa.ipc.IpcWriteOptions(compression="lz4"), "compressed record batches"),
        (pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True), "dictionaries in parts"),
    ],
    ids=["zstd", "lz4", "delta"],
)
def test_rows_that_grow_when_they_are_read_are_refused(
    live: LiveBroker, tmp_path: Path, options: pa.ipc.IpcWriteOptions, problem: str
) -> None:
    with pf.FlightClient(serve_tables(live, tmp_path)) as client:
        batches = [
            pa.record_batch(
                {
                    "topic": pa.DictionaryArray.from_arrays(
                        pa.array([0, count - 1]), pa.array(["a", "b", "c"][:count])
                    ),
                    "value": pa.array([bytes(1000), b"w"]),
                }
            )
            for count in (2, 3)
        ]
        with pytest.raises(pa.ArrowException, match=problem):
            put(client, batches, options)
        assert [each.type for each in client.list_actions()]


def test_a_large_key_and_a_large_schema_are_refused(live: LiveBroker, tmp_path: Path) -> None:
    with FlightClient(serve_tables(live, tmp_path)) as client:
        with pytest.raises(BadRows, match="'key'"):
            client.stage([rows([b"v"], key=[bytes(2 * MIB)])], writer="w", epoch=0, partition=0)
        noted = rows([b"v"]).replace_schema_metadata({"k": "v" * 100_000})
        with pytest.raises(BadRows, match="the schema has"):
            client.stage([noted], writer="w", epoch=0, partition=0)


def test_connections_of_one_address_are_limited(
    live: LiveBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "FLIGHT_CONNECTIONS_PER_ADDRESS_MAX", 3)
    endpoint = serve_tables(live, tmp_path)
    links = [connect(endpoint) for _ in range(3)]
    for link in links:
        assert link.recv(3) == b"\0\0\x18"  # the SETTINGS of the server
    with connect(endpoint) as fourth:
        assert fourth.recv(1) == b""
    links.pop().close()
    with FlightClient(endpoint) as client:
        deadline = time.monotonic() + 5
        while True:
            try:
                client.bounds()
                break
            except NoAnswer:
                assert time.monotonic() < deadline
    for link in links:
        link.close()


def test_clients_that_reset_their_connection_close_no_descriptor_of_others(
    tmp_path: Path,
) -> None:
    """Once broken: the descriptor to gRPC was closed twice, and the process ended soon."""
    place = ("--data", tmp_path, "--listen", "tcp://127.0.0.1:0", "--flight", "127.0.0.1:0")
    with Running("serve", *place) as broker:
        lines = [broker.line()]
        while lines[-1] != "Ready.":
            lines.append(broker.line())
        (endpoint,) = re.findall(r"flight +(\S+)", "\n".join(lines))
        for _ in range(300):
            with connect(endpoint) as link:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with FlightClient(endpoint) as client:
            assert client.bounds()[0].end == 0
        assert broker.popen.poll() is None


def test_tls_handshakes_that_do_not_end_count_as_connections(
    live: LiveBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once broken: silent clients could open any number, and use up the open files."""
    monkeypatch.setattr(front, "FLIGHT_CONNECTIONS_PER_ADDRESS_MAX", 3)
    tls = Path(__file__).parents[1] / "support" / "tls"
    address = Address(
        "tls", "127.0.0.1", 0, certificate=tls / "localhost.pem", key=tls / "localhost.key"
    )
    endpoint = serve_tables(live, tmp_path, address=address)
    with contextlib.ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(connect(endpoint))
        with connect(endpoint) as fourth:
            fourth.settimeout(5)
            assert fourth.recv(1) == b""


def test_a_silent_connection_is_closed(
    live: LiveBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "FLIGHT_FIRST_SECONDS_MAX", 0.5)
    endpoint = serve_tables(live, tmp_path)
    with FlightClient(endpoint) as client, connect(endpoint) as link:
        client.bounds()
        link.sendall(PREFACE)
        began = time.monotonic()
        while link.recv(4096):
            assert time.monotonic() - began < 8
        client.bounds()  # an authenticated one stays


def test_a_reader_that_stalls_is_cut_and_its_place_is_free(
    live: LiveBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.flight.service.FLIGHT_READS_MAX", 1)
    endpoint = serve_tables(live, tmp_path, stall_seconds_max=1.0)
    with FlightClient(endpoint) as client, FlightClient(endpoint) as other:
        count = 20
        client.stage([rows([bytes(2 * MIB)] * count)], writer="w", epoch=0, partition=0)
        client.publish_epoch("w", 0, [0])
        request = ReadRange(0, count, columns=["value"])
        stalled = client.read(request)
        next(stalled)
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: found.append(sum(map(len, other.read(request)))), daemon=True
        )
        thread.start()
        thread.join(15)
        assert found == [count]
        with pytest.raises(NoAnswer):
            list(stalled)


# --- Errors ---------------------------------------------------------------------------------------


def texts_of(error: BaseException) -> str:
    extra = getattr(error, "extra_info", b"") or b""
    return f"{error} {bytes(extra).decode(errors='replace')}"


def test_no_traceback_and_no_path_leaves_the_process(live: LiveBroker, tmp_path: Path) -> None:
    endpoint = serve_tables(live, tmp_path)
    with FlightClient(endpoint) as client:
        client.stage([rows([b"x"] * 100)], writer="w", epoch=0, partition=0)
        client.publish_epoch("w", 0, [0])
        client.stage([rows([b"x"])], writer="w", epoch=1, partition=0)
    (staged,) = tmp_path.rglob("1-0.arrows")
    staged.write_bytes(b"damaged")
    (state,) = tmp_path.rglob("writer.json")
    whole_state = state.read_bytes()
    with pf.FlightClient(endpoint) as raw:

        def act(kind: str, body: Any) -> list[Any]:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            return list(raw.do_action(pf.Action(kind, data)))

        def exchange() -> None:
            writer, reader = raw.do_exchange(DESCRIPTOR)
            try:
                reader.read_chunk()
            finally:
                writer.close()

        def damaged_state() -> None:
            state.write_bytes(b"{")
            try:
                act("publish-epoch", {"writer": "w", "epoch": 1, "partitions": [0]})
            finally:
                state.write_bytes(whole_state)

        huge = {"start": 0, "end": 100}
        attempts: dict[str, Any] = {
            "list flights": lambda: list(raw.list_flights()),
            "info": lambda: raw.get_flight_info(DESCRIPTOR),
            "schema": lambda: raw.get_schema(DESCRIPTOR),
            "exchange": exchange,
            "no action": lambda: act("nothing", b""),
            "no json": lambda: act("splits", b"\xff{"),
            "deep json": lambda: act("splits", b"[" * 100_000),
            "huge time": lambda: act("offset-at", {"timestamp_us": 1 << 70}),
            "huge range": lambda: act("splits", {**huge, "end": 1 << 70, "count": 1}),
            "huge group": lambda: act("commit-group", {"group": "g", "offsets": {"0": 1 << 70}}),
            "bad group": lambda: act("commit-group", {"group": "../g", "offsets": {}}),
            "huge since": lambda: raw.do_get(
                pf.Ticket(
                    json.dumps({**huge, "since_us": 1 << 62, "until_us": -(1 << 62)}).encode()
                )
            ).read_all(),
            "beyond since": lambda: raw.do_get(
                pf.Ticket(json.dumps({**huge, "since_us": 1 << 63}).encode())
            ).read_all(),
            "damaged rows": lambda: act(
                "publish-epoch", {"writer": "w", "epoch": 1, "partitions": [0]}
            ),
            "damaged state": damaged_state,
            "surrogate": lambda: raw.do_get(
                pf.Ticket(b'{"start":0,"end":100,"expression":"\\ud800"}')
            ).read_all(),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
            except (pf.FlightError, pa.ArrowException, OSError) as error:
                said = texts_of(error)
                assert "Traceback" not in said, name
                assert ".py" not in said, name
                assert str(tmp_path) not in said, (name, said)
                assert '"code"' in said, (name, said)
            else:
                assert name in {"huge since", "huge time", "huge group"}, name


def test_an_unexpected_error_has_an_id_that_is_in_the_log(live: LiveBroker, tmp_path: Path) -> None:
    endpoint = serve_tables(live, tmp_path)
    with FlightClient(endpoint) as client:
        client.stage([rows([b"x"] * 100)], writer="w", epoch=0, partition=0)
        client.publish_epoch("w", 0, [0])
        with structlog.testing.capture_logs() as logged, pytest.raises(InternalError) as caught:
            list(client.read(ReadRange(0, 100, since_us=1 << 63)))
        assert client.bounds()[0].end == 100
    (event,) = [each for each in logged if each["event"] == "call failed"]
    assert event["error_id"] == caught.value.error_id
    assert "exc_info" in event


def test_a_call_without_a_token_does_not_open_the_way_for_large_messages(
    live: LiveBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "FLIGHT_FIRST_SECONDS_MAX", 2.0)

    def verify(token: str, _peer: Peer) -> Principal:
        if token != "secret":  # noqa: S105
            raise AuthenticationFailed("token", "unknown")
        return Principal("somebody")

    endpoint = serve_tables(live, tmp_path, anonymous=None, verify=verify)
    large = rows([bytes(MIB)])
    with FlightClient(endpoint) as unknown, pytest.raises((AuthenticationFailed, BadRequest)):
        unknown.stage([large], writer="w", epoch=0, partition=0)
    with FlightClient(endpoint, token="secret") as known:  # noqa: S106
        assert known.stage([large], writer="w", epoch=0, partition=0) == 1
        assert known.offset_at(OffsetAt(0).timestamp_us) == 0


def test_a_call_of_a_client_that_has_left_has_no_principal(
    live: LiveBroker, tmp_path: Path
) -> None:
    """Once broken: it was anonymous, also for an address that belongs to another principal."""
    tokens: list[str] = []

    def verify(token: str, _peer: Peer) -> Principal:
        tokens.append(token)
        return Principal("somebody")

    endpoint = serve_tables(live, tmp_path, anonymous=Principal("anyone"), verify=verify)
    options = pf.FlightCallOptions(headers=[(b"authorization", b"Bearer guess")])
    with pf.FlightClient(endpoint) as client:
        assert list(client.list_actions())
        made = live.server._flights[0]._front
        assert made is not None
        made.connections.clear()
        for given in (pf.FlightCallOptions(), options):
            with pytest.raises(pf.FlightUnauthenticatedError):
                list(client.list_actions(given))
    assert tokens == []


def test_a_listener_without_calls_stops_at_once(live: LiveBroker, tmp_path: Path) -> None:
    serve_tables(live, tmp_path)
    (flight,) = live.server._flights
    begun = time.monotonic()
    live.run(lambda: flight.close(seconds_max=9))
    assert time.monotonic() - begun < 4

"""`penstock conform`: our broker passes, wrong servers fail, and the report says how."""

import ast
import asyncio
import json
import struct
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from penstock import conform
from penstock.client.address import parse_address
from penstock.conform import Outcome, Setup, run, suite
from penstock.conform.context import CaseContext
from penstock.conform.fleximq import encoding as fx
from penstock.conform.herald import encoding as herald
from penstock.conform.rheos.encoding import PUBLISH, RHEOS2
from penstock.gateway.options import GatewayOptions
from penstock.limits import CONFORM_SILENT_CASES_MAX
from penstock.protocols import PROTOCOLS as REGISTRY
from penstock.transport import addresses
from tests.support.commands import Commands
from tests.support.live import LiveBroker

PROTOCOLS = REGISTRY.labels
CASES = {label: suite(label).cases for label in PROTOCOLS}
TLS = Path(__file__).parents[2] / "support" / "tls"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _log_of_the_broker() -> Iterator[None]:
    """Keep what the broker logs apart from what the command prints."""
    with capture_logs():
        yield


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live


def url(address: tuple[str, int]) -> str:
    return f"tcp://127.0.0.1:{address[1]}"


# --- Our broker -----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_broker_passes_all_cases_that_need_no_setup(
    commands: Commands, broker: LiveBroker, protocol: str
) -> None:
    server = url(broker.address)
    done = commands.run("conform", server, "--protocol", protocol, "--profile")
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, ""), done.out
    special = sum(case.requires is not None for case in CASES[protocol])
    passed = len(CASES[protocol]) - special
    assert lines[-1] == f"{protocol} at {server}: {passed} passed, 0 failed, {special} skipped"
    outcomes = [line.split()[:2] for line in lines[:-1] if not line.startswith(" ")]
    assert outcomes == [
        ["passed" if case.requires is None else "skipped", case.name] for case in CASES[protocol]
    ]
    assert done.out.count("         needs a ") == special


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_profile_what_the_specification_leaves_open_is_skipped(
    commands: Commands, broker: LiveBroker, protocol: str
) -> None:
    done = commands.run("conform", url(broker.address), "--protocol", protocol, "--json")
    report = json.loads(done.out)
    expected = [case.name for case in CASES[protocol] if case.profile or case.requires]
    assert (done.code, report["failed"], report["skipped"]) == (0, 0, len(expected))
    assert report["passed"] == len(CASES[protocol]) - len(expected)
    skipped = [row for row in report["cases"] if row["outcome"] == "skipped"]
    assert [row["case"] for row in skipped] == expected
    for row in skipped:
        reason = "--profile" if row["requires"] is None else Setup(row["requires"]).description
        assert reason in row["reason"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_there_are_enough_cases_and_each_names_its_rule(protocol: str) -> None:
    cases = CASES[protocol]
    assert suite(protocol).label == protocol
    assert len(cases) >= 50
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert case.name == case.name.lower()
        assert case.rule
        assert case.section
        assert "|" not in case.section
    assert sum(not case.profile for case in cases) >= 15


def test_every_setup_is_used_and_described() -> None:
    used = {case.requires for cases in CASES.values() for case in cases}
    assert used == {None, *Setup}
    assert all(setup.description.startswith("a ") for setup in Setup)


def test_cases_share_nothing_with_the_code_under_test() -> None:
    allowed = (
        "penstock.conform",
        "penstock.client.address",
        "penstock.client.errors",
        "penstock.limits",
        "penstock.protocols",
    )
    for path in Path(conform.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                assert not name.startswith("penstock") or name.startswith(allowed), (path, name)


def test_a_protocol_may_be_said_in_the_url(commands: Commands, broker: LiveBroker) -> None:
    server = f"herald://127.0.0.1:{broker.address[1]}"
    done = commands.run("conform", server, "--case", "ping-is-answered")
    assert done.code == 0
    assert done.out.splitlines()[0] == (
        "passed   ping-is-answered  PING is answered with PONG (PING (0x20))"
    )


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [
        ("tls://localhost:0?{files}", "rheos2"),
        ("ipc://{folder}/broker.sock", "lamamq"),
        ("ws://127.0.0.1:0/ws", "fleximq"),
        ("wss://localhost:0/ws?{files}", "fleximq"),
    ],
)
def test_every_transport_is_checked(
    commands: Commands, broker: LiveBroker, tmp_path: Path, listener: str, protocol: str
) -> None:
    files = f"certificate={TLS / 'localhost.pem'}&key={TLS / 'localhost.key'}"
    wanted = addresses.parse_address(listener.format(files=files, folder=tmp_path))
    listening = asyncio.run_coroutine_threadsafe(broker.server.listen(wanted), broker._loop)
    server = listening.result(10).location
    done = commands.run("conform", server, "--protocol", protocol, "--ca", TLS / "localhost.pem")
    assert (done.code, done.err) == (0, ""), done.out
    assert " 0 failed, " in done.out


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_lets_nobody_in_is_skipped(commands: Commands, protocol: str) -> None:
    with LiveBroker(options=GatewayOptions(anonymous=None)) as closed:
        server = url(closed.address)
        done = commands.run("conform", server, "--protocol", protocol, "--profile")
    assert (done.code, done.err) == (0, "")
    cases = CASES[protocol]
    refused = sum(case.requires is None for case in cases)
    assert done.out.count("         the server refuses ") == refused
    assert done.out.splitlines()[-1].endswith(f": 0 passed, 0 failed, {len(cases)} skipped")


def test_a_server_that_waits_for_a_key_is_skipped(commands: Commands) -> None:
    with WrongServer(wants_key) as server:
        arguments = ["--protocol", "lamamq", "--timeout", "0.1", "--case", "a-push-is-answered"]
        done = commands.run("conform", server.url, *arguments)
    assert done.code == 0
    assert "the server refuses the client, with error 2" in done.out


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_never_answers_gets_three_cases(commands: Commands, protocol: str) -> None:
    with WrongServer(silent) as server:
        arguments = ["--protocol", protocol, "--timeout", "0.05"]
        done = commands.run("conform", server.url, *arguments)
    assert done.code == 1
    assert done.out.splitlines()[-1].endswith(": 0 passed, 3 failed, 0 skipped")
    assert done.err == (
        f"penstock: stopped, because {server.url} sent not one byte in 3 cases; "
        f"give the URL of a {protocol} server, or --timeout more seconds\n"
    )


def test_a_server_that_answered_once_gets_all_cases() -> None:
    turns = iter(range(1000))

    async def first_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if next(turns) == 0:
            await always(b"\x00")(reader, writer)
        await silent(reader, writer)

    cases = CASES["herald"][: 2 * CONFORM_SILENT_CASES_MAX]
    with WrongServer(first_only) as server:
        results = list(run(cases, parse_address(server.url), seconds_max=0.5))
    assert len(results) == len(cases)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"-ERR unknown command\r\n",
        bytes.fromhex("000000040000000000"),  # SETTINGS, the first frame of HTTP/2
        bytes.fromhex("000012040000000000000300000064000400400000"),
        b"SSH-2.0-x\r\n",
    ],
)
def test_a_server_of_another_protocol_passes_no_case(answer: bytes) -> None:
    with WrongServer(always(answer)) as server:
        address = parse_address(server.url)
        for protocol in PROTOCOLS:
            results = list(run(CASES[protocol], address, seconds_max=0.02, profile=True))
            passed = [each.case.name for each in results if each.outcome is Outcome.PASSED]
            assert (protocol, passed) == (protocol, [])


def test_a_checksum_that_begins_like_a_request_fails_no_case(
    broker: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (b"conform/%d" % number for number in range(100_000))
    name = next(each for each in names if RHEOS2.request(PUBLISH, each, b"1")[-4] == 0xFA)
    monkeypatch.setattr(CaseContext, "topic", lambda *_: name)
    (case,) = (c for c in CASES["rheos2"] if c.name == "a-connection-does-not-change-its-version")
    address = parse_address(url(broker.address))
    (result,) = run([case], address, seconds_max=2, profile=True, setup=Setup.SHARED)
    assert result.outcome is Outcome.PASSED, result


# --- Wrong servers --------------------------------------------------------------------------------


class WrongServer:
    """`with WrongServer(handler) as server:` and connect to `server.url`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._done: asyncio.Event
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(5)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = url(server.sockets[0].getsockname())
        self._ready.set()
        await self._done.wait()
        server.close()
        accepting = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        await asyncio.gather(*(accepting - self._tasks))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)  # of a task that may be cancelled before it starts
        self._tasks.add(self._loop.create_task(self._handle(reader, writer)))

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handler(reader, writer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(4096):
        pass


async def closing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(1)


def always(answer: bytes) -> Handler:
    """A server with one answer to everything."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(answer)
            await writer.drain()

    return handle


HEAD2 = b"\xac\x00" + bytes(16)
BAD_SUM = HEAD2 + struct.pack("<I", zlib.crc32(HEAD2) ^ 1)
ACK2 = HEAD2 + struct.pack("<I", zlib.crc32(HEAD2))


async def pings_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """herald: the handshake is right, the answer to PING is a PING."""
    await reader.readexactly(7 + 2 + len(b"conform-p"))
    writer.write(herald.frame(0x03, bytes(9)))
    writer.write(await reader.readexactly(7))
    await reader.read()


async def other_stamp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """fleximq: JOIN is answered rightly, PING with another timestamp."""
    await reader.readexactly(34)
    writer.write(fx.frame(fx.REP, 1000, fx.status(200)))
    await reader.readexactly(34)
    writer.write(fx.frame(fx.PONG, 1, fx.keepalive(41)))
    await reader.read()


async def other_id(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """LamaMQ: the handshake is right, the answer to a push has another id."""
    await reader.readexactly(5 + len(b"conform"))
    writer.write(b"\x01\x00\x01\x00")
    await reader.readexactly(2 + 4)
    writer.write(b"\x00\x00\x00\x08\x00")
    await reader.read()


async def wants_key(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """LamaMQ: a name is followed by a key, and that is refused."""
    await reader.readexactly(5 + len(b"conform"))
    size = int.from_bytes(await reader.readexactly(4), "big")
    await reader.readexactly(size)
    writer.write(b"\x00\x00\x00\x00\x02\x00\x00\x00\x02no")
    await writer.drain()


@pytest.mark.parametrize(
    ("protocol", "case", "handler", "expected", "got"),
    [
        ("rheos1", "create-is-acknowledged", always(b"\xac" + bytes(16) + b"\x01"),
         "ac" + " .." * 16 + " 00", "ac" + " 00" * 16 + " 01"),
        ("rheos1", "an-acknowledgment-has-18-bytes", always(b"\xac" + bytes(21)),
         "18 bytes and nothing more", "00 00 00 00"),
        ("rheos2", "create-is-acknowledged", always(BAD_SUM),
         f"{ACK2.hex(' ')} (CRC32)", BAD_SUM.hex(" ")),
        ("herald", "ping-is-answered", pings_back,
         "fe ca 21 00 00 00 00", "fe ca 20 00 00 00 00"),
        ("herald", "a-publisher-is-acknowledged", always(b"\xca\xfe\x03\x00\x00\x00\x09" + bytes(9)),
         "fe ca 03 09 00 00 00" + " .." * 9, "ca fe 03 00 00 00 09" + " 00" * 9),
        ("fleximq", "ping-is-answered", other_stamp, "a PONG with timestamp 0", None),
        ("fleximq", "join-is-answered", always(fx.frame(fx.REP, 7, fx.status(200))),
         "a REP with status 200 to 299 and a client id from 1000 up",
         fx.frame(fx.REP, 7, fx.status(200)).hex(" ")),
        ("fleximq", "join-is-answered", always(fx.frame(fx.PONG, 1000)),
         "a REP that answers JOIN", fx.frame(fx.PONG, 1000).hex(" ")),
        ("lamamq", "a-push-is-answered", other_id, "00 00 00 07 00", "00 00 00 08 00"),
        ("lamamq", "the-server-offers-versions", always(b"\x01\x00\x02\x00"),
         "a highest version that is not below the lowest", "01 00 02 00"),
    ],
)  # fmt: skip
def test_a_wrong_answer_fails_with_the_bytes(  # noqa: PLR0917
    commands: Commands,
    protocol: str,
    case: str,
    handler: Handler,
    expected: str,
    got: str | None,
) -> None:
    arguments = ["--protocol", protocol, "--case", case, "--timeout", "1"]
    with WrongServer(handler) as server:
        text = commands.run("conform", server.url, *arguments)
        report = json.loads(commands.run("conform", server.url, *arguments, "--json").out)
    assert (text.code, text.err) == (1, "")
    head, sent, wanted, found, summary = text.out.splitlines()
    assert head.startswith(f"failed   {case}  ")
    assert sent.startswith("         sent      ")
    assert wanted == f"         expected  {expected}"
    if got is not None:
        assert found == f"         got       {got}"
    assert summary == f"{protocol} at {server.url}: 0 passed, 1 failed, 0 skipped"
    (row,) = report["cases"]
    assert (report["failed"], row["outcome"], row["expected"]) == (1, "failed", expected)
    bytes.fromhex(row["sent"].split(" …")[0])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("handler", "said"), [(silent, "nothing in 0.1 s"), (closing, "the end of the connection")]
)
def test_a_server_that_says_nothing_or_closes_passes_no_case_that_needs_an_answer(
    protocol: str, handler: Handler, said: str
) -> None:
    with WrongServer(handler) as server:
        results = list(
            run(CASES[protocol], parse_address(server.url), seconds_max=0.1, profile=True)
        )
    passed = {result.case.name for result in results if result.outcome is Outcome.PASSED}
    # What may be refused by closing or waiting is no fault of such a server.
    assert passed <= {
        "another-method-gets-no-offer",
        "another-first-message-is-refused",
        "a-malformed-handshake-is-refused",
    }
    failed = [result for result in results if result.outcome is Outcome.FAILED]
    assert len(failed) + len(passed) == len(results)
    assert all(result.got == said for result in failed), {result.got for result in failed}
    assert all(result.sent for result in failed)


# --- Lists and errors -----------------------------------------------------------------------------


def test_cases_can_be_listed_without_a_server(commands: Commands) -> None:
    done = commands.run("conform", "--protocol", "herald", "--list")
    assert done.code == 0
    assert len(done.out.splitlines()) == len(CASES["herald"])
    assert "ping-is-answered  PING is answered with PONG (PING (0x20))" in done.out.splitlines()
    listed = json.loads(commands.run("conform", "--protocol", "herald", "--list", "--json").out)
    assert [row["case"] for row in listed] == [case.name for case in CASES["herald"]]
    assert set(listed[0]) == {"case", "section", "rule", "profile", "requires"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--protocol", "herald"], "say which server, as tcp://127.0.0.1:7000"),
        (
            ["tcp://127.0.0.1:7000"],
            "give --protocol, or a URL such as herald://127.0.0.1:7000",
        ),
        (["--list"], "give --protocol, or a URL such as herald://127.0.0.1:7000"),
        (["tcp://127.0.0.1:7000", "--protocol", "mqtt"], "'mqtt' is none of"),
        (
            ["--protocol", "herald", "--list", "--case", "nope"],
            "'nope' is no case of herald; --list",
        ),
        (
            ["tcp://127.0.0.1:1", "--protocol", "herald"],
            "tcp://127.0.0.1:1: Connection refused; start the server, or give its URL",
        ),
        (["udp://127.0.0.1:7000", "--protocol", "herald"], "give a URL such as tcp://"),
        (["nonsense", "--protocol", "herald"], "give a URL such as tcp://"),
        (["herald://127.0.0.1:7000", "--protocol", "rheos1"], "Leave one of them out"),
        (["tcp://127.0.0.1:7000", "--protocol", "herald", "--timeout", "0"], "--timeout"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    commands: Commands, arguments: list[str], said: str
) -> None:
    assert said in commands.run("conform", *arguments).error_line()


def test_help_has_examples(commands: Commands) -> None:
    done = commands.run("conform", "--help")
    assert done.code == 0
    assert "penstock conform tcp://127.0.0.1:7000 --protocol herald" in done.out

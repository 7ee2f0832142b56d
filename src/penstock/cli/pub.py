"""`penstock pub`: send messages."""

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.client_options import (
    EXIT_INTERRUPTED,
    URL_DEFAULT,
    Broker,
    Ca,
    CommandFailed,
    Json,
    Name,
    ProtocolChoice,
    Timeout,
    Url,
    client_errors,
    examples,
    find_broker,
    json_line,
    terminable,
)
from penstock.cli.columns import plural
from penstock.cli.log_text import shown
from penstock.cli.remedies import explain
from penstock.errors import PenstockError
from penstock.limits import PUB_BATCH_BYTES, PUB_BATCH_MESSAGES, PUB_VALUE_BYTES_MAX

if TYPE_CHECKING:
    import uuid

    from penstock.client import ClientEvent, SyncClient

__all__ = ["PUB_EXAMPLES", "Value", "pub", "read_value"]

_TICKS: Final = 100
"""Batches a second in which a rate is kept."""
_READ_BYTES: Final = 256 * 1024

Value = Annotated[
    str | None,
    typer.Argument(
        metavar="VALUE|-",
        help="The value; - or nothing for standard input.",
        show_default=False,
    ),
]


PUB_EXAMPLES: Final = examples(
    "penstock pub sensors/17/temp 21.5",
    "penstock pub orders - --header source=shop < order.json",
    "tail -f app.log | penstock pub logs/app --lines --url fleximq://127.0.0.1:7000",
    "penstock pub alarms high --protocol rheos2 --create --json",
)


def pub(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="A topic; herald: channel/7, or 7.")
    ],
    value: Value = None,
    *,
    url: Url = URL_DEFAULT,
    protocol: ProtocolChoice = None,
    name: Name = None,
    ca: Ca = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A header (LamaMQ); may be given again.", show_default=False
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Send each line of standard input as a message.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Send the value N times.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="R", help="At most R messages a second.", show_default=False
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the topic first (Rheos), unless it is there.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="herald and fleximq: whether to ask the broker if all has arrived.",
        ),
    ] = True,
    timeout: Timeout = 30.0,
    json: Json = False,
) -> None:
    """Send a value to a topic, and end when the broker has it.

    Rheos and LamaMQ acknowledge each message, and Rheos tells its id. herald and fleximq do not:
    there a ping behind the messages finds out whether one was refused.
    """
    if lines and (value not in {None, "-"} or count > 1):
        raise typer.BadParameter(
            "takes its messages from standard input; leave out VALUE and --count.",
            param_hint="--lines",
        )
    broker = find_broker(url, protocol, default="lamamq", name=name, ca=ca, timeout=timeout)
    headers = _headers(header or (), broker)
    batches = _lines() if lines else _repeated(read_value(value), count)
    sender = _Sender(_topic(topic, broker), headers, _Pace(rate))
    single = not lines and count == 1
    code = 0
    from penstock.client import ConnectionLost, TimedOut  # noqa: PLC0415  (so that --help starts fast)

    with terminable(), client_errors(broker):
        try:
            with _connect(broker, sender) as client:
                if create:
                    _create(client, sender.topic)
                sender.send(client, batches, single=single)
                if wait and broker.protocol in {"herald", "fleximq"}:
                    client.ping()
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        except (ConnectionLost, TimedOut) as error:
            sender.check()
            if single or not sender.begun:
                raise
            sender.print(json=json, error=error)
            raise CommandFailed(*sender.unknown(error, broker)) from error
    sender.check()
    sender.print(json=json)
    raise typer.Exit(code)


def _topic(topic: str, broker: Broker) -> str | int:
    return int(topic) if broker.protocol == "herald" and topic.isdecimal() else topic


def _headers(given: Iterable[str], broker: Broker) -> list[tuple[str, bytes]]:
    headers = []
    for each in given:
        if broker.protocol != "lamamq":
            raise typer.BadParameter(
                f"{broker.protocol} has no headers; LamaMQ has: give --protocol lamamq.",
                param_hint="--header",
            )
        name, separator, text = each.partition("=")
        if not name or not separator:
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE.", param_hint="--header")
        headers.append((name, os.fsencode(text)))
    return headers


def read_value(value: str | None) -> bytes:
    """Return the value that an argument means; raise OperatorError or typer.BadParameter."""
    if value not in {None, "-"}:
        return os.fsencode(value or "")
    if value is None and sys.stdin.isatty():
        raise typer.BadParameter("give one, or - for standard input.", param_hint="VALUE")
    found = sys.stdin.buffer.read(PUB_VALUE_BYTES_MAX + 1)
    if len(found) > PUB_VALUE_BYTES_MAX:
        raise CommandFailed(
            f"standard input has more than {PUB_VALUE_BYTES_MAX:,} bytes",
            "no protocol carries that in one message: cut it, or give --lines",
        )
    return found


def _repeated(value: bytes, count: int) -> Iterator[list[bytes]]:
    size = max(1, min(PUB_BATCH_MESSAGES, PUB_BATCH_BYTES // max(1, len(value))))
    for first in range(0, count, size):
        yield [value] * min(size, count - first)


def _lines() -> Iterator[list[bytes]]:
    """Give the lines that are there, as often as some are."""
    rest = b""
    number = sys.stdin.fileno()
    while more := os.read(number, _READ_BYTES):
        *found, rest = (rest + more).split(b"\n")
        if found:
            yield found
        if len(rest) > PUB_VALUE_BYTES_MAX:
            raise CommandFailed(
                f"a line of standard input has more than {PUB_VALUE_BYTES_MAX:,} bytes",
                "no protocol carries that in one message",
            )
    if rest:
        yield [rest]


def _connect(broker: Broker, sender: "_Sender") -> "SyncClient":
    from penstock.client import connect_sync  # noqa: PLC0415  (so that --help starts fast)

    options = {**broker.options, "reconnect": False, "on_event": sender.observe}
    return connect_sync(broker.url, **options)  # type: ignore[arg-type]


def _create(client: "SyncClient", topic: str | int) -> None:
    from penstock.client import Refused, Unsupported  # noqa: PLC0415

    try:
        client.create_topic(topic)
    except Refused:
        pass  # it is there already, or the publish behind this one is refused too
    except Unsupported as error:
        raise CommandFailed(str(error), "topics are there once used: leave out --create") from None


class _Pace:
    """Cuts batches, and waits between them, so that a rate is kept; None is as fast as it goes."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def pieces(self, batch: list[bytes]) -> Iterator[list[bytes]]:
        """Give a batch in pieces, each when it is due."""
        if self._rate is None:
            yield batch
            return
        size = max(1, int(self._rate / _TICKS))
        for first in range(0, len(batch), size):
            piece = batch[first : first + size]
            now = time.monotonic()
            time.sleep(max(0.0, self._due - now))
            yield piece
            # What was late is not made up for in a burst.
            self._due = max(self._due, now) + len(piece) / self._rate


class _Sender:
    """Sends, and sums up what was sent."""

    def __init__(self, topic: str | int, headers: list[tuple[str, bytes]], pace: _Pace) -> None:
        self.topic = topic
        self.begun = False
        self._headers = headers
        self._pace = pace
        self._messages = 0
        self._bytes = 0
        self._message_id: uuid.UUID | None = None
        self._refused: list[Exception] = []

    def observe(self, event: "ClientEvent") -> None:
        """Take note of what is refused without an answer."""
        from penstock.client import ErrorReported  # noqa: PLC0415

        if isinstance(event, ErrorReported):
            self._refused.append(event.error)

    def send(self, client: "SyncClient", batches: Iterable[list[bytes]], *, single: bool) -> None:
        """Publish all batches; raise what the client raises."""
        from penstock.client import PartlyRefused, Refused  # noqa: PLC0415

        try:
            for batch in itertools.chain.from_iterable(map(self._pace.pieces, batches)):
                self.begun = True
                if single:
                    self._message_id = client.publish(self.topic, batch[0], headers=self._headers)
                else:
                    client.publish_many(self.topic, batch, headers=self._headers)
                self._messages += len(batch)
                self._bytes += sum(map(len, batch))
                self.check()
        except (Refused, PartlyRefused) as error:
            remedy = "if the topic is new, give --create" if "rheos" in str(error) else ""
            before = f"after {plural(self._messages, 'message')}: " if self._messages else ""
            raise CommandFailed(f"{before}{error}", remedy) from error

    def check(self) -> None:
        """Raise CommandFailed if something was refused behind our back."""
        if self._refused:
            raise CommandFailed(str(self._refused[0]))

    def unknown(self, error: PenstockError, broker: Broker) -> tuple[str, str]:
        """Return what is not known behind an error that came in between, and what helps."""
        text, remedy = explain(error, url=broker.url, protocol=broker.protocol)
        if broker.protocol in {"herald", "fleximq"}:
            return f"{text}; {broker.protocol} acknowledges nothing: what arrived is not known", ""
        if self._messages:
            remedy = "send again what is behind them"
        counted = plural(self._messages, "message")
        return f"{text}; {counted} acknowledged, whether more arrived is not known", remedy

    def print(self, *, json: bool, error: Exception | None = None) -> None:
        """Say what was sent, before the error if there was one."""
        topic = f"channel/{self.topic}" if isinstance(self.topic, int) else self.topic
        if not json:
            told = f", id {self._message_id}" if self._message_id else ""
            size = f"{plural(self._messages, 'message')}, {plural(self._bytes, 'byte')}"
            typer.echo(f"{shown(topic)}: {size}{told}.")
            return
        document: dict[str, object] = {
            "topic": topic,
            "messages": self._messages,
            "bytes": self._bytes,
        }
        if self._message_id:
            document["message_id"] = str(self._message_id)
        if error is not None:
            document["error"] = str(error)
        sys.stdout.buffer.write(json_line(document))
        sys.stdout.buffer.flush()

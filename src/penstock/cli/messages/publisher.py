"""Publish messages and print a summary."""

import itertools
import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Final

import typer

from penstock.cli.common.client_options import Broker, terminable
from penstock.cli.common.columns import plural
from penstock.cli.common.failure import EXIT_INTERRUPTED, CommandFailed
from penstock.cli.common.output import json_line
from penstock.cli.common.remedies import client_errors, explain
from penstock.cli.common.text import shown
from penstock.cli.messages.payload import read_value
from penstock.client import (
    BadOption,
    ClientEvent,
    ConnectionLost,
    ErrorReported,
    PartlyRefused,
    Refused,
    SyncClient,
    TimedOut,
    Unsupported,
    connect_sync,
)
from penstock.errors import PenstockError
from penstock.limits import PUB_BATCH_BYTES, PUB_BATCH_MESSAGES, PUB_VALUE_BYTES_MAX
from penstock.protocols import PROTOCOLS

__all__ = ["publish"]

_TICKS: Final = 100
"""Batches per second in which a rate is kept."""
_READ_BYTES: Final = 256 * 1024


def publish(
    broker: Broker,
    topic: str,
    value: str | None,
    *,
    headers: Iterable[str],
    dedupe: str | None = None,
    lines: bool,
    count: int,
    rate: float | None,
    create: bool,
    wait: bool,
    json: bool,
) -> None:
    """Publish a value, or lines of standard input; raise OperatorError or typer.BadParameter."""
    pairs = _headers(headers, broker)
    batches = _lines() if lines else _repeated(read_value(value), count)
    sender = _Sender(broker, _topic(topic, broker), pairs, _Pace(rate))
    sender.dedupe = dedupe
    single = not lines and count == 1
    code = 0
    with terminable(), client_errors(broker):
        try:
            with _connect(broker, sender) as client:
                if create:
                    _create(client, sender.topic)
                sender.send(client, batches, single=single)
                if wait and not PROTOCOLS[broker.protocol].carries.acknowledgments:
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
    has_channels = PROTOCOLS[broker.protocol].carries.channels
    return int(topic) if has_channels and topic.isdecimal() else topic


def _headers(given: Iterable[str], broker: Broker) -> list[tuple[str, bytes]]:
    headers = []
    for each in given:
        if not PROTOCOLS[broker.protocol].carries.headers:
            able = " or ".join(each.label for each in PROTOCOLS if each.carries.headers)
            raise typer.BadParameter(
                f"{broker.protocol} has no headers; give --protocol {able}.",
                param_hint="--header",
            )
        name, separator, text = each.partition("=")
        if not name or not separator:
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE.", param_hint="--header")
        headers.append((name, os.fsencode(text)))
    return headers


def _repeated(value: bytes, count: int) -> Iterator[list[bytes]]:
    size = max(1, min(PUB_BATCH_MESSAGES, PUB_BATCH_BYTES // max(1, len(value))))
    for first in range(0, count, size):
        yield [value] * min(size, count - first)


def _lines() -> Iterator[list[bytes]]:
    """Yield the lines of standard input, as many as have arrived at a time."""
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


def _connect(broker: Broker, sender: "_Sender") -> SyncClient:

    options = {**broker.options, "reconnect": False, "on_event": sender.observe}
    return connect_sync(broker.url, **options)  # type: ignore[arg-type]


def _create(client: SyncClient, topic: str | int) -> None:

    try:
        client.create_topic(topic)
    except Refused:
        pass  # the topic exists, or the publish that follows is refused, too
    except Unsupported as error:
        raise CommandFailed(str(error), "topics need not be created: leave out --create") from None


class _Pace:
    """Splits batches and waits between the parts to keep a rate; None is no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def pieces(self, batch: list[bytes]) -> Iterator[list[bytes]]:
        """Yield the parts of a batch, each when it is due."""
        if self._rate is None:
            yield batch
            return
        size = max(1, int(self._rate / _TICKS))
        for first in range(0, len(batch), size):
            piece = batch[first : first + size]
            now = time.monotonic()
            time.sleep(max(0.0, self._due - now))
            yield piece
            # After a delay the rate goes on as before, without a burst.
            self._due = max(self._due, now) + len(piece) / self._rate


class _Sender:
    """Publishes batches and counts them."""

    def __init__(
        self, broker: Broker, topic: str | int, headers: list[tuple[str, bytes]], pace: _Pace
    ) -> None:
        self.topic = topic
        self.begun = False
        self.dedupe: str | None = None
        """The key of the only message."""
        self._protocol = broker.protocol
        self._headers = headers
        self._pace = pace
        self._messages = 0
        self._bytes = 0
        self._message_id: uuid.UUID | None = None
        self._refused: list[Exception] = []

    def observe(self, event: ClientEvent) -> None:
        """Record a refusal that is not the answer to a publish."""
        if isinstance(event, ErrorReported):
            self._refused.append(event.error)

    def _publish_one(self, client: SyncClient, value: bytes) -> uuid.UUID | None:
        try:
            return client.publish(self.topic, value, headers=self._headers, dedupe=self.dedupe)
        except (BadOption, Unsupported) as error:
            if self.dedupe is None:
                raise
            remedy = "; give --protocol lamamq or fleximq" if isinstance(error, Unsupported) else ""
            raise typer.BadParameter(f"{error}{remedy}.", param_hint="--dedupe") from None

    def send(self, client: SyncClient, batches: Iterable[list[bytes]], *, single: bool) -> None:
        """Publish all batches; raise what the client raises."""
        try:
            for batch in itertools.chain.from_iterable(map(self._pace.pieces, batches)):
                self.begun = True
                if single:
                    self._message_id = self._publish_one(client, batch[0])
                else:
                    client.publish_many(self.topic, batch, headers=self._headers)
                self._messages += len(batch)
                self._bytes += sum(map(len, batch))
                self.check()
        except (Refused, PartlyRefused) as error:
            creates = PROTOCOLS[self._protocol].carries.topics_created
            remedy = "if the topic is new, give --create" if creates else ""
            before = f"after {plural(self._messages, 'message')}: " if self._messages else ""
            raise CommandFailed(f"{before}{error}", remedy) from error

    def check(self) -> None:
        """Raise CommandFailed if a refusal was recorded."""
        if self._refused:
            raise CommandFailed(str(self._refused[0]))

    def unknown(self, error: PenstockError, broker: Broker) -> tuple[str, str]:
        """Return the text for an error after which it is unknown which messages arrived."""
        text, remedy = explain(error, url=broker.url, protocol=broker.protocol)
        if not PROTOCOLS[broker.protocol].carries.acknowledgments:
            unknown = f"{broker.protocol} has no acknowledgments: what arrived is unknown"
            return f"{text}; {unknown}", ""
        if self._messages:
            remedy = "send the messages after them again"
        counted = plural(self._messages, "message")
        return f"{text}; {counted} acknowledged, whether more arrived is unknown", remedy

    def print(self, *, json: bool, error: Exception | None = None) -> None:
        """Print the messages sent, up to the error if there was one."""
        topic = f"channel/{self.topic}" if isinstance(self.topic, int) else self.topic
        if not json:
            message_id = f", id {self._message_id}" if self._message_id else ""
            size = f"{plural(self._messages, 'message')}, {plural(self._bytes, 'byte')}"
            typer.echo(f"{shown(topic)}: {size}{message_id}.")
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

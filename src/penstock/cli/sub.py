"""`penstock sub`: print messages as they come."""

import contextlib
import os
import queue
import re
import select
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.client_options import (
    EXIT_INCOMPLETE,
    URL_DEFAULT,
    Broker,
    Ca,
    Name,
    ProtocolChoice,
    Url,
    client_errors,
    examples,
    find_broker,
    json_line,
    sum_up,
    tell,
    terminable,
    value_fields,
)
from penstock.cli.columns import plural
from penstock.cli.log_options import quiet_pipe, time_text
from penstock.cli.log_text import shown, text_of
from penstock.errors import PenstockError
from penstock.limits import SUB_BATCHES_WAITING_MAX

if TYPE_CHECKING:
    from penstock.client import ClientEvent, Delivery, SyncStream

__all__ = ["SUB_EXAMPLES", "sub"]

_AGO: Final = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d|w)", re.ASCII)
_LOOK_SECONDS: Final = 0.1


SUB_EXAMPLES: Final = examples(
    "penstock sub 'sensors/#'",
    "penstock sub 'orders/+' --replay 10m --json | jq .value",
    "penstock sub 7 --protocol herald --count 1 --timeout 5 --raw",
)


def sub(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="PATTERN...",
            help="Topics: + or * for one level, # or > for the rest; herald: channel/7, or 7.",
        ),
    ],
    *,
    url: Url = URL_DEFAULT,
    protocol: ProtocolChoice = None,
    name: Name = None,
    ca: Ca = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Start in history: earliest, 10m ago, an offset, or a time.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End after N messages.", show_default=False),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="End after so long.", show_default=False),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Print values alone, byte for byte, a newline behind each."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one object a line.")] = False,
) -> None:
    """Print messages as they come: topic and value, with a tab between.

    Ends with Ctrl-C, after --count messages or --timeout seconds: with 1 if --count was not
    reached. What is not printable is escaped, but with --raw.
    """
    if raw and json:
        raise typer.BadParameter("goes without --json.", param_hint="--raw")
    broker = find_broker(url, protocol, default="lamamq", name=name, ca=ca)
    topics = [_topic(pattern, replay, broker) for pattern in patterns]
    lines = _json_lines(broker.protocol) if json else _raw_lines if raw else _text_lines
    deadline = None if timeout is None else time.monotonic() + timeout
    printed, size = 0, 0
    with terminable(), quiet_pipe(), client_errors(broker):
        try:
            with _arriving(broker, topics) as take:
                while (count is None or printed < count) and (batch := take(deadline)):
                    wanted = batch if count is None else batch[: count - printed]
                    sys.stdout.buffer.write(lines(wanted))
                    sys.stdout.buffer.flush()
                    printed += len(wanted)
                    size += sum(len(each.value) for each in wanted)
        except KeyboardInterrupt:
            sum_up(f"{plural(printed, 'message')}, {plural(size, 'byte')}.")
            return
    if count is not None and printed < count:
        tell(f"{printed} of {plural(count, 'message')} came within {timeout:g} s")
        raise typer.Exit(EXIT_INCOMPLETE)


def _topic(pattern: str, replay: str | None, broker: Broker) -> str | int:
    if broker.protocol == "herald":
        if replay is not None:
            raise typer.BadParameter(
                "herald cannot ask for history: set herald.replay in the broker's configuration, "
                "or give another --protocol.",
                param_hint="--replay",
            )
        return int(pattern) if pattern.isdecimal() else pattern
    return pattern if replay is None else f"{pattern}@{_place(replay)}"


def _place(replay: str) -> str:
    """Return a place in history as a subscription writes it; raise typer.BadParameter."""
    from penstock.replay import split_replay  # noqa: PLC0415

    place = replay
    if replay.isdecimal():
        place = f"#{replay}"
    elif _AGO.fullmatch(replay):
        place = f"-{replay}"
    if split_replay(f"x@{place}")[0] != "x":
        raise typer.BadParameter(
            f"{replay!r} is no place in history. Give earliest, a time ago such as 10m, an offset, "
            "or a time such as 2026-11-01T08:00:00Z.",
            param_hint="--replay",
        )
    return place


@contextlib.contextmanager
def _arriving(
    broker: Broker, topics: list[str | int]
) -> "Iterator[Callable[[float | None], list[Delivery]]]":
    """Subscribe, with a client for each topic; give what waits for messages up to a time.

    It returns none when that has come. Clients answer the broker while nobody takes messages. It
    raises BrokenPipeError when nobody reads the output any more, whether or not messages come.
    """
    from penstock.client import connect_sync  # noqa: PLC0415  (so that --help starts fast)

    waiting: queue.Queue[list[Delivery] | Exception] = queue.Queue(SUB_BATCHES_WAITING_MAX)
    ended = threading.Event()

    def put(item: "list[Delivery] | Exception") -> None:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put(item, timeout=_LOOK_SECONDS)
                return

    def feed(stream: "SyncStream[Delivery]") -> None:
        try:
            while not ended.is_set():
                put(stream.take())
        except PenstockError as error:
            put(error)

    def take(deadline: float | None) -> "list[Delivery]":
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            item = waiting.get(timeout=left)
        except queue.Empty:
            return []
        if isinstance(item, Exception):
            raise item
        return item

    with contextlib.ExitStack() as stack:
        stack.callback(ended.set)
        for topic in topics:
            client = connect_sync(broker.url, **broker.options, on_event=_Watch().observe)  # type: ignore[misc]
            stack.enter_context(client)
            stream = client.subscribe(topic)
            threading.Thread(target=feed, args=(stream,), daemon=True).start()
        stack.callback(ended.set)  # before the clients end
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            threading.Thread(target=lambda: put(_reader_gone()), daemon=True).start()
        yield take


def _reader_gone() -> BrokenPipeError:
    """Wait until nobody reads the pipe that is standard output; return what writing would raise."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # the end of the reader is always told
    poll.poll()
    return BrokenPipeError()


class _Watch:
    """Tells of a connection that was lost, and of its return."""

    def __init__(self) -> None:
        self._lost = False

    def observe(self, event: "ClientEvent") -> None:
        """See client.Observer."""
        from penstock.client import State, StateChanged  # noqa: PLC0415

        if not isinstance(event, StateChanged):
            tell(str(event.error))
        elif event.state is State.RECONNECTING:
            self._lost = True
            tell(f"the connection was lost: {event.reason}; it is made again")
        elif event.state is State.CONNECTED and self._lost:
            self._lost = False
            tell("connected again; what was published in between is not shown")


def _text_lines(batch: "list[Delivery]") -> bytes:
    return "".join(
        f"{'-' if each.topic is None else shown(each.topic)}\t{text_of(each.value)}\n"
        for each in batch
    ).encode()


def _raw_lines(batch: "list[Delivery]") -> bytes:
    return b"".join(each.value + b"\n" for each in batch)


def _json_lines(protocol: str) -> "Callable[[list[Delivery]], bytes]":
    def lines(batch: "list[Delivery]") -> bytes:
        return b"".join(json_line(_fields(each, protocol)) for each in batch)

    return lines


def _fields(delivery: "Delivery", protocol: str) -> dict[str, Any]:
    """Return what there is to know of a message; what its protocol does not say is left out."""
    fields: dict[str, Any] = {"topic": delivery.topic, **value_fields(delivery.value)}
    sender = delivery.sender
    if sender is not None:
        fields["sender"] = str(uuid.UUID(bytes=sender) if isinstance(sender, bytes) else sender)
    if delivery.timestamp_us is not None:
        fields["timestamp"] = time_text(delivery.timestamp_us)
    if delivery.headers:
        fields["headers"] = [{"key": key, **value_fields(value)} for key, value in delivery.headers]
    if delivery.status is not None:
        fields["status"] = delivery.status
    fields["protocol"] = protocol
    return fields

"""Subscribe to topics and print messages."""

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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import typer

from penstock.cli.common.client_options import Broker, terminable
from penstock.cli.common.columns import plural
from penstock.cli.common.failure import EXIT_INCOMPLETE
from penstock.cli.common.output import (
    json_line,
    quiet_pipe,
    sum_up,
    tell,
    time_text,
    value_fields,
)
from penstock.cli.common.remedies import client_errors
from penstock.cli.common.text import shown, text_of
from penstock.client import (
    ClientEvent,
    Delivery,
    State,
    StateChanged,
    SyncConsumer,
    SyncGroupMessage,
    SyncStream,
    connect_sync,
)
from penstock.errors import PenstockError
from penstock.limits import SUB_BATCHES_WAITING_MAX
from penstock.protocols import PROTOCOLS
from penstock.replay import split_replay

__all__ = ["print_messages"]

_AGO: Final = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d|w)", re.ASCII)
_LOOK_SECONDS: Final = 0.1
_Batch: TypeAlias = Sequence[Delivery | SyncGroupMessage]


def print_messages(
    broker: Broker,
    patterns: Sequence[str],
    *,
    replay: str | None,
    group: str | None,
    count: int | None,
    timeout: float | None,
    raw: bool,
    json: bool,
) -> None:
    """Print messages until a signal, `count` messages or `timeout` seconds; raise OperatorError."""
    if group is not None and len(patterns) > 1:
        raise typer.BadParameter("goes with one pattern.", param_hint="--group")
    topics = [_topic(pattern, replay, group, broker) for pattern in patterns]
    lines = _json_lines(broker.protocol) if json else _raw_lines if raw else _text_lines
    deadline = None if timeout is None else time.monotonic() + timeout
    printed, size = 0, 0
    with terminable(), quiet_pipe(), client_errors(broker):
        try:
            with _arriving(broker, topics, group, replay) as take:
                while (count is None or printed < count) and (batch := take(deadline)):
                    taken = batch if count is None else batch[: count - printed]
                    wanted = [_delivery(each) for each in taken]
                    sys.stdout.buffer.write(lines(wanted))
                    # Count before the flush: a reader of the lines may send a signal at once.
                    printed += len(wanted)
                    size += sum(len(each.value) for each in wanted)
                    sys.stdout.buffer.flush()
                    for each in taken:
                        if isinstance(each, SyncGroupMessage):
                            each.ack()
        except KeyboardInterrupt:
            sum_up(f"{plural(printed, 'message')}, {plural(size, 'byte')}.")
            return
    if count is not None and printed < count:
        tell(f"{printed} of {plural(count, 'message')} came within {timeout:g} s")
        raise typer.Exit(EXIT_INCOMPLETE)


def _delivery(item: Delivery | SyncGroupMessage) -> Delivery:
    return item.delivery if isinstance(item, SyncGroupMessage) else item


def _topic(pattern: str, replay: str | None, group: str | None, broker: Broker) -> str | int:
    if PROTOCOLS[broker.protocol].carries.channels:
        if group is not None:
            raise typer.BadParameter(
                "herald's channels join groups by herald.replay in the broker's configuration; "
                "give another --protocol.",
                param_hint="--group",
            )
        if replay is not None:
            raise typer.BadParameter(
                "herald has no replay: set herald.replay in the broker's configuration, "
                "or give another --protocol.",
                param_hint="--replay",
            )
        return int(pattern) if pattern.isdecimal() else pattern
    if replay is None or group is not None:
        return pattern
    return f"{pattern}@{_place(replay)}"


def _place(replay: str) -> str:
    """Return a start position as a subscription writes it; raise typer.BadParameter."""
    place = replay
    if replay.isdecimal():
        place = f"#{replay}"
    elif _AGO.fullmatch(replay):
        place = f"-{replay}"
    if split_replay(f"x@{place}")[0] != "x":
        raise typer.BadParameter(
            f"{replay!r} is no start position. Give earliest, a time ago such as 10m, an offset, "
            "or a time such as 2026-11-01T08:00:00Z.",
            param_hint="--replay",
        )
    return place


@contextlib.contextmanager
def _arriving(
    broker: Broker, topics: list[str | int], group: str | None, replay: str | None
) -> Iterator[Callable[[float | None], Sequence[Delivery | SyncGroupMessage]]]:
    """Subscribe with one client per topic; yield a function that waits for messages.

    The function takes a deadline and returns no messages when it has passed. Clients answer the
    broker's pings meanwhile. The function raises BrokenPipeError when the reader of the output has
    closed the pipe, also while no messages arrive.
    """
    waiting: queue.Queue[_Batch | Exception] = queue.Queue(SUB_BATCHES_WAITING_MAX)
    ended = threading.Event()

    def put(item: _Batch | Exception) -> None:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put(item, timeout=_LOOK_SECONDS)
                return

    def feed(stream: SyncStream[Delivery] | SyncConsumer) -> None:
        try:
            while not ended.is_set():
                put(stream.take())
        except PenstockError as error:
            put(error)

    def take(deadline: float | None) -> _Batch:
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
            stream: SyncStream[Delivery] | SyncConsumer
            if group is None:
                stream = client.subscribe(topic)
            else:
                start = None if replay is None else _place(replay)
                stream = client.consume(topic, group=group, start=start)
                stack.callback(stream.close)
            threading.Thread(target=feed, args=(stream,), daemon=True).start()
        stack.callback(ended.set)  # before the clients end
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            threading.Thread(target=lambda: put(_reader_gone()), daemon=True).start()
        yield take


def _reader_gone() -> BrokenPipeError:
    """Wait until the reader of standard output closes the pipe; return the error of a write."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # POLLERR is always reported
    poll.poll()
    return BrokenPipeError()


class _Watch:
    """Prints when the connection is lost and when it is back."""

    def __init__(self) -> None:
        self._lost = False

    def observe(self, event: ClientEvent) -> None:
        """See client.Observer."""
        if not isinstance(event, StateChanged):
            tell(str(event.error))
        elif event.state is State.RECONNECTING:
            self._lost = True
            tell(f"the connection was lost: {event.reason}; reconnecting")
        elif event.state is State.CONNECTED and self._lost:
            self._lost = False
            tell("connected again")


def _text_lines(batch: list[Delivery]) -> bytes:
    return "".join(
        f"{'-' if each.topic is None else shown(each.topic)}\t{text_of(each.value)}\n"
        for each in batch
    ).encode()


def _raw_lines(batch: list[Delivery]) -> bytes:
    return b"".join(each.value + b"\n" for each in batch)


def _json_lines(protocol: str) -> Callable[[list[Delivery]], bytes]:
    def lines(batch: list[Delivery]) -> bytes:
        return b"".join(json_line(_fields(each, protocol)) for each in batch)

    return lines


def _fields(delivery: Delivery, protocol: str) -> dict[str, Any]:
    """Return the fields of a message; those that are not known are left out."""
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
    if delivery.place is not None:
        fields |= {
            "partition": delivery.partition,
            "offset": delivery.offset,
            "message_id": str(delivery.message_id),
            "broker_time": time_text(delivery.broker_time_us),
        }
    fields["protocol"] = protocol
    return fields

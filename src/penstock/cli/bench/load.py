"""A load on a broker: publishers and subscribers, each in its own process.

There are two loads: at full speed for throughput, and at a steady rate for latency. In both,
subscribers count the bytes that arrive, and publishers report at the end how many messages they
sent.
"""

import multiprocessing
import queue
import select
import signal
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from penstock.cli.bench.wire import AcknowledgmentCounter, HandshakeFailed, PublishRefused, Wire
from penstock.cli.common.failure import CommandFailed
from penstock.limits import BENCH_HANDSHAKE_SECONDS_MAX, BENCH_QUIET_SECONDS_MAX

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from multiprocessing.context import ForkProcess
    from multiprocessing.queues import Queue

__all__ = ["Figures", "Load", "Tick", "run_load"]

_WRITE_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 1024 * 1024
_LOOK_SECONDS: Final = 0.1
_ALIVE_SECONDS: Final = 10.0
_CONNECT_SECONDS_MAX: Final = 30.0
_STAMP: Final = struct.Struct("<d")
_UNKNOWN: Final = -1

Tick: TypeAlias = Callable[[float], None]


class Load(NamedTuple):
    """The size of a load. `rate` is that of all publishers together, None for full speed."""

    wire: Wire
    address: tuple[str, int]
    value_bytes: int
    publishers: int
    subscribers: int
    seconds: float
    rate: float | None = None


class Figures(NamedTuple):
    """The counts of a load. Times are in seconds from the first byte sent.

    `acknowledged` is None if the protocol has no acknowledgments. `taken_seconds` ends with the
    last acknowledgment, or the last delivery if there are none. `late` has the latency of each
    delivery in seconds, if there was a rate.
    """

    published: int
    acknowledged: int | None
    delivered: int
    taken_seconds: float
    delivered_seconds: float
    late: "array[float]"


class _Sent(NamedTuple):
    messages: int
    acknowledged: int
    start: float
    end: float


class _Received(NamedTuple):
    messages: float
    last: float
    late: bytes


class _Shared(NamedTuple):
    """Objects that the processes of a load share."""

    ready: Any
    go: Any
    expected: Any
    results: "Queue[_Sent | _Received | HandshakeFailed | str]"


def run_load(load: Load, watch: "Callable[[], AbstractContextManager[Tick]]") -> Figures:
    """Run a load; raise CommandFailed, HandshakeFailed, or OSError if there is no listener.

    `watch` is entered when all processes run; it yields a function that takes the seconds passed.
    """
    context = multiprocessing.get_context("fork")
    shared = _Shared(
        context.Semaphore(0), context.Event(), context.Value("q", _UNKNOWN), context.Queue()
    )
    _try_out(load)
    works = [_subscribe] * load.subscribers + [_publish] * load.publishers
    processes = [
        context.Process(target=_work, args=(work, load, shared), daemon=True) for work in works
    ]
    for process in processes:
        process.start()
    try:
        with watch() as tick:
            return _gather(load, shared, processes, tick)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _try_out(load: Load) -> None:
    """Create the topic and connect once; raise OSError or HandshakeFailed."""
    for first in (load.wire.prepare, load.wire.open_publisher):
        with socket.create_connection(load.address, timeout=BENCH_HANDSHAKE_SECONDS_MAX) as peer:
            first(peer)


def _gather(
    load: Load,
    shared: _Shared,
    processes: "list[ForkProcess]",
    tick: Tick,
) -> Figures:
    for _ in processes:
        while not shared.ready.acquire(timeout=_LOOK_SECONDS):
            _look(shared, processes)
    shared.go.set()
    sent: list[_Sent] = []
    received: list[_Received] = []
    looked = time.monotonic()
    while len(sent) + len(received) < len(processes):
        try:
            result = shared.results.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            _look(shared, processes)
            now = time.monotonic()
            tick(now - looked)
            looked = now
            continue
        match result:
            case _Sent():
                sent.append(result)
                if len(sent) == load.publishers:
                    shared.expected.value = sum(each.messages for each in sent)
            case _Received():
                received.append(result)
            case HandshakeFailed():
                raise result
            case str():
                raise CommandFailed(result, "see the log of the broker")
    return _sum_up(load, sent, received)


def _sum_up(load: Load, sent: list[_Sent], received: list[_Received]) -> Figures:
    start = min(each.start for each in sent)
    last = max(each.last for each in received)
    acknowledges = load.wire.acknowledged_bytes > 0
    late = array("d")
    for each in received:
        late.frombytes(each.late)
    return Figures(
        published=sum(each.messages for each in sent),
        acknowledged=sum(each.acknowledged for each in sent) if acknowledges else None,
        delivered=int(sum(each.messages for each in received)),
        taken_seconds=max((each.end for each in sent) if acknowledges else (last,)) - start,
        delivered_seconds=last - start,
        late=late,
    )


def _look(shared: _Shared, processes: "list[ForkProcess]") -> None:
    """Raise CommandFailed if a process ended without a result."""
    if any(process.exitcode for process in processes) and shared.results.empty():
        raise CommandFailed("a process of the load was killed", "try with fewer clients")


# --- In the processes -------------------------------------------------------------------------


def _work(work: Callable[[Load, _Shared, socket.socket], Any], load: Load, shared: _Shared) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends its processes
    try:
        with socket.create_connection(load.address, timeout=_CONNECT_SECONDS_MAX) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            shared.results.put(work(load, shared, peer))
    except HandshakeFailed as error:
        shared.ready.release()
        shared.results.put(error)
    except (OSError, PublishRefused) as error:
        shared.ready.release()
        shared.results.put(f"{load.wire.name}: {_said(error)}")
    except Exception as error:  # noqa: BLE001  (the command prints it in one line)
        shared.ready.release()
        shared.results.put(f"{load.wire.name}: {type(error).__name__}: {error}")


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Answers:
    """Counts the answers to publishes in a thread. A refusal is an error."""

    def __init__(self, wire: Wire, peer: socket.socket) -> None:
        self._wire = wire
        self._peer = peer
        self._counter = AcknowledgmentCounter(wire)
        self.count = 0
        self.last = 0.0
        self._expected: int | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, expected: int) -> None:
        """Wait for `expected` answers while they arrive; raise the error of the thread."""
        self.last = max(self.last, time.monotonic())
        self._expected = expected
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        buffer = memoryview(bytearray(_READ_BYTES))
        try:
            while not self._is_done():
                if select.select([self._peer], [], [], _LOOK_SECONDS)[0]:
                    size = self._peer.recv_into(buffer)
                    if not size:
                        raise ConnectionError("the broker closed a publisher's connection")
                    self.count += self._counter.count(buffer[:size])
                    self.last = time.monotonic()
        except (OSError, PublishRefused) as error:
            self._failure = error

    def _is_done(self) -> bool:
        if self._expected is None:
            return False
        if not self._wire.acknowledged_bytes or self.count >= self._expected:
            return True
        return time.monotonic() - self.last > BENCH_QUIET_SECONDS_MAX


def _publish(load: Load, shared: _Shared, peer: socket.socket) -> _Sent:
    frame = load.wire.open_publisher(peer)
    answers = _Answers(load.wire, peer)
    shared.ready.release()
    shared.go.wait()
    start = time.monotonic()
    send = _send_fast if load.rate is None else _send_by_clock
    messages = send(load, peer, frame, start)
    answers.finish(messages)
    return _Sent(messages, answers.count, start, answers.last)


def _send_fast(
    load: Load, peer: socket.socket, frame: Callable[[bytes], bytes], start: float
) -> int:
    one = frame(bytes(load.value_bytes))
    each = max(1, _WRITE_BYTES // len(one))
    block = one * each
    messages = 0
    while time.monotonic() - start < load.seconds:
        peer.sendall(block)
        messages += each
    return messages


def _send_by_clock(
    load: Load, peer: socket.socket, frame: Callable[[bytes], bytes], start: float
) -> int:
    """Send at a steady rate, without waiting; each message has the time that it was due."""
    rate = (load.rate or 1.0) / load.publishers
    burst = max(1, round(rate / 1000))
    rest = bytes(load.value_bytes - _STAMP.size)
    bursts = max(1, int(load.seconds * rate / burst))
    for number in range(bursts):
        due = start + number * burst / rate
        time.sleep(max(0.0, due - time.monotonic()))
        peer.sendall(frame(_STAMP.pack(due) + rest) * burst)
    return bursts * burst


def _subscribe(load: Load, shared: _Shared, peer: socket.socket) -> _Received:
    size = load.wire.open_subscriber(peer, bytes(load.value_bytes))
    front = size - load.value_bytes - load.wire.trailer_bytes
    layout = struct.Struct(f"<{front}xd{size - front - _STAMP.size}x")
    late = array("d")
    rest = b""
    shared.ready.release()
    buffer = memoryview(bytearray(_READ_BYTES))
    received = 0
    last = spoke = time.monotonic()
    while True:
        if select.select([peer], [], [], _LOOK_SECONDS)[0]:
            more = peer.recv_into(buffer)
            if not more:
                raise ConnectionError("the broker closed a subscriber's connection")
            last = time.monotonic()
            received += more
            if load.rate is not None:
                whole = rest + buffer[:more]
                end = len(whole) - len(whole) % size
                late.extend(last - due for (due,) in layout.iter_unpack(whole[:end]))
                rest = whole[end:]
            continue
        # Checked only when nothing arrives, so that surplus messages are counted, too.
        expected = shared.expected.value
        now = time.monotonic()
        if expected != _UNKNOWN and (
            received >= expected * size or now - last > BENCH_QUIET_SECONDS_MAX
        ):
            return _Received(received / size, last, late.tobytes())
        if now - spoke > _ALIVE_SECONDS and load.wire.alive():
            peer.sendall(load.wire.alive())
            spoke = now

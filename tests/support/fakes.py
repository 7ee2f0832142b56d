"""A clock that a test moves, and a link that keeps what was written."""

from penstock._kernels.gathered import Gathered
from penstock.memory import unlimited_account
from penstock.ports import Handler


class FakeClock:
    """See ports.Clock; it stands still unless it is moved, or each look at it takes a time."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.look_seconds = 0.0

    def now_us(self) -> int:
        return 1_700_000_000_000_000 + int(self.seconds * 1_000_000)

    def monotonic(self) -> float:
        self.seconds += self.look_seconds
        return self.seconds


class RecordingLink:
    """See ports.Link; what is written stays in `written` until it is read."""

    handler: Handler

    def __init__(
        self, peer: str = "test", *, host: str = "", certificate_names: frozenset[str] = frozenset()
    ) -> None:
        self.connection = 7
        self.account = unlimited_account()
        self.peer = peer
        self.host = host
        self.certificate_names = certificate_names
        self.has_left = False
        self.written: list[bytes] = []
        self.buffered = 0
        self.congested = False
        self.pauses = 0
        self.closed = False
        self.aborted = False

    def set_handler(self, handler: Handler) -> None:
        self.handler = handler

    def write_gathered(self, frames: Gathered) -> None:
        self.write(frames.copied())

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def read(self) -> bytes:
        data = b"".join(self.written)
        self.written.clear()
        return data

    @property
    def paused(self) -> bool:
        return self.pauses > 0

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1
        assert self.pauses >= 0

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

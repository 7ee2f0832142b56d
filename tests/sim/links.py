"""A simulated network: links that split bytes anywhere, lag, and break."""

import random
from collections.abc import Callable

from penstock._kernels.gathered import Gathered
from penstock.memory import unlimited_account
from penstock.ports import Handler


class SimulatedLink:
    """Both directions of one connection; to the broker it is a `ports.Link`.

    Bytes to the broker wait in `inbound` and are offered in chunks of any size; bytes that the
    handler does not take are offered again with more, as on a stream connection. Bytes to the client wait in
    `outbound` until the client reads some.
    """

    def __init__(self, randomness: random.Random, peer: str, *, congested_bytes: int) -> None:
        self.connection = 7
        self.account = unlimited_account()
        self.peer = peer
        self.host = ""
        self.certificate_names: frozenset[str] = frozenset()
        self.has_left = False
        self.handler: Handler | None = None
        self.on_write: Callable[[bytes], None] = lambda _: None
        self.outbound = bytearray()
        self.closing = False
        self.gone = False
        self.congested = False
        self._congested_bytes = congested_bytes
        self._randomness = randomness
        self._inbound = bytearray()
        self._rest = b""
        self._pauses = 0

    # --- ports.Link ---------------------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        return len(self.outbound)

    def set_handler(self, handler: Handler) -> None:
        self.handler = handler

    def write_gathered(self, frames: Gathered) -> None:
        self.write(frames.copied())

    def write(self, data: bytes) -> None:
        if not self.closing and not self.gone:
            self.on_write(data)
            self.outbound += data
            self.congested |= len(self.outbound) > self._congested_bytes

    def pause(self) -> None:
        self._pauses += 1

    def resume(self) -> None:
        self._pauses -= 1
        assert self._pauses >= 0

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True
        self.outbound.clear()

    # --- the client's end ---------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._inbound += data

    def read(self) -> bytes:
        """Return some of the broker's bytes, or all, or none."""
        size = self._randomness.choice([1, 7, 60, 1000, len(self.outbound)])
        data = bytes(self.outbound[:size])
        del self.outbound[:size]
        if self.congested and len(self.outbound) <= self._congested_bytes // 4:
            self.congested = False
            if self.handler is not None:
                self.handler.drained()
        return data

    # --- the network --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether bytes are in flight that the broker can take now."""
        return bool(self._inbound) and not self._pauses and not self.closing and not self.gone

    def carry(self) -> None:
        """Deliver a chunk of the client's bytes to the broker."""
        if not self.busy or self.handler is None:
            return
        size = self._randomness.choice([1, 2, 3, 20, 200, 4000, len(self._inbound)])
        data = self._rest + bytes(self._inbound[:size])
        del self._inbound[:size]
        taken = self.handler.received(memoryview(data))
        assert 0 <= taken <= len(data)
        self._rest = data[taken:]
        if self._rest and self._pauses:
            # The rest is offered again when the handler resumes.
            self._inbound[:0] = self._rest
            self._rest = b""

    def cut(self) -> None:
        """Break the connection and discard all bytes in flight."""
        if not self.gone:
            self.gone = True
            self._inbound.clear()
            if self.handler is not None:
                self.handler.lost("cut")

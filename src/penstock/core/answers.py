"""What a client is told about its requests, in their order, and not before the disk has them."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from penstock.limits import ANSWERS_WAITING_BYTES_MAX
from penstock.model import Durability
from penstock.ports import Link, LogWriter, Receipt

__all__ = ["Answers", "Refusal", "is_safe"]

Refusal: TypeAlias = Callable[[bytes], bytes]
"""Makes of the answer to messages that are safe the answer to the same messages if they failed."""


class _Waiting(NamedTuple):
    receipt: Receipt | None  # None for an answer that waits only for those before it
    answer: bytes
    refusal: Refusal | None


class Answers:
    """The answers of one client. What waits is bounded: beyond it the client is not read."""

    __slots__ = ("_finishing", "_link", "_paused", "_waiting", "_waiting_bytes", "_watched")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._watched: deque[tuple[Receipt, Refusal]] = deque()
        self._paused = False
        self._finishing = False

    def send(self, data: bytes) -> None:
        """Send an answer, behind every answer that still waits for the disk."""
        if self._waiting:
            self._wait(_Waiting(None, data, None))
        else:
            self._link.write(data)

    def send_when_safe(
        self, receipt: Receipt, answer: bytes, refusal: Refusal, log: LogWriter
    ) -> bool:
        """Send an answer once its messages are safe, or its refusal; tell whether it waits.

        An empty answer holds up no other. Several of one commit are refused once.
        """
        safe = is_safe(receipt, log)
        if not answer:
            if not safe and not (self._watched and _together(self._watched[-1][0], receipt)):
                self._watched.append((receipt, refusal))
            return not safe
        if safe and not self._waiting:
            self._link.write(answer)
            return False
        self._wait(_Waiting(receipt, answer, refusal))
        return True

    def release(self, log: LogWriter) -> bool:
        """Send all that is settled by now; tell whether more waits."""
        ready = []
        waiting = self._waiting
        while waiting:
            receipt, answer, refusal = waiting[0]
            if receipt is not None and refusal is not None and not is_safe(receipt, log):
                if receipt.commit > log.failed_commit:
                    break
                ready.append(refusal(answer))
            else:
                ready.append(answer)
            self._waiting_bytes -= len(answer)
            waiting.popleft()
        if ready:
            self._link.write(b"".join(ready))
        while self._watched:
            receipt, refusal = self._watched[0]
            if not is_safe(receipt, log):
                if receipt.commit > log.failed_commit:
                    break
                self.send(refusal(b""))
            self._watched.popleft()
        if self._paused and self._waiting_bytes <= ANSWERS_WAITING_BYTES_MAX // 2:
            self._paused = False
            self._link.resume()
        if waiting or self._watched:
            return True
        if self._finishing:
            self._link.close()
        return False

    def finish(self) -> None:
        """Close the link behind the last answer, also one that still waits for the disk."""
        if self._waiting or self._watched:
            self._finishing = True
        else:
            self._link.close()

    def _wait(self, answer: _Waiting) -> None:
        self._waiting.append(answer)
        self._waiting_bytes += len(answer.answer)
        if self._waiting_bytes > ANSWERS_WAITING_BYTES_MAX and not self._paused:
            self._paused = True
            self._link.pause()


def is_safe(receipt: Receipt, log: LogWriter) -> bool:
    """Tell whether messages are where their durability asks for."""
    match receipt.durability:
        case Durability.MEMORY:
            return True
        case Durability.OS:
            return receipt.commit <= log.written_commit
        case Durability.FSYNC:
            return receipt.commit <= log.durable_commit


def _together(one: Receipt, other: Receipt) -> bool:
    """Tell whether two receipts are settled at the same time and in the same way."""
    return one.commit == other.commit and one.durability is other.durability

"""Answers to a client's requests, in order, sent once the messages have their durability."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from penstock.limits import ANSWERS_WAITING_BYTES_MAX
from penstock.memory import Purpose
from penstock.model import Durability
from penstock.ports import Link, LogWriter, Receipt

__all__ = ["Answers", "FailureEncoder", "is_safe"]

_MEMORY: Final = Durability.MEMORY  # a name of the module is found faster than that of an enum
_FSYNC: Final = Durability.FSYNC

FailureEncoder: TypeAlias = Callable[[bytes], bytes]
"""Takes the acknowledgment of some messages; returns the answer to send if their commit fails."""


class _Waiting(NamedTuple):
    receipt: Receipt | None  # None for an answer that waits for earlier answers only
    answer: bytes
    encode_failure: FailureEncoder | None


class Answers:
    """The answers of one client.

    Its link is paused above ANSWERS_WAITING_BYTES_MAX, and while there is no memory for more.
    """

    __slots__ = ("_finishing", "_link", "_paused", "_unanswered", "_waiting", "_waiting_bytes")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._unanswered: deque[tuple[Receipt, FailureEncoder]] = deque()
        self._paused = False
        self._finishing = False

    def send(self, data: bytes) -> None:
        """Send an answer after all answers that wait for the log."""
        if self._waiting:
            self._wait(_Waiting(None, data, None))
        else:
            self._link.write(data)

    def send_when_safe(
        self, receipt: Receipt, answer: bytes, encode_failure: FailureEncoder, log: LogWriter
    ) -> bool:
        """Send an answer when its messages are safe or failed; return True if it must wait.

        Other answers do not wait for an empty one. Failures of one commit are answered once.
        """
        safe = receipt.durability is _MEMORY or is_safe(receipt, log)
        if not answer:
            last = self._unanswered[-1][0] if self._unanswered else None
            if not safe and (last is None or not _settle_together(last, receipt)):
                self._unanswered.append((receipt, encode_failure))
            return not safe
        if safe and not self._waiting:
            self._link.write(answer)
            return False
        self._wait(_Waiting(receipt, answer, encode_failure))
        return True

    def release(self, log: LogWriter) -> bool:
        """Send all answers that are settled; return True if others still wait."""
        ready = []
        waiting = self._waiting
        while waiting:
            receipt, answer, encode_failure = waiting[0]
            if receipt is not None and encode_failure is not None and not is_safe(receipt, log):
                if receipt.commit > log.failed_commit:
                    break
                ready.append(encode_failure(answer))
            else:
                ready.append(answer)
            self._waiting_bytes -= len(answer)
            waiting.popleft()
        if ready:
            self._link.account.hold(Purpose.ANSWERS, self._waiting_bytes)
            self._link.write(b"".join(ready))
        while self._unanswered:
            receipt, encode_failure = self._unanswered[0]
            if not is_safe(receipt, log):
                if receipt.commit > log.failed_commit:
                    break
                self.send(encode_failure(b""))
            self._unanswered.popleft()
        room = self._waiting_bytes <= ANSWERS_WAITING_BYTES_MAX // 2
        if self._paused and room and not (waiting and self._link.account.overdrawn):
            self._paused = False
            self._link.resume()
        if waiting or self._unanswered:
            return True
        if self._finishing:
            self._link.close()
        return False

    def finish(self) -> None:
        """Close the link after the last answer, including those that wait for the log."""
        if self._waiting or self._unanswered:
            self._finishing = True
        else:
            self._link.close()

    def _wait(self, answer: _Waiting) -> None:
        self._waiting.append(answer)
        self._waiting_bytes += len(answer.answer)
        has_memory = self._link.account.force(Purpose.ANSWERS, self._waiting_bytes)
        full = not has_memory or self._waiting_bytes > ANSWERS_WAITING_BYTES_MAX
        if full and not self._paused:
            self._paused = True
            self._link.pause()


def is_safe(receipt: Receipt, log: LogWriter) -> bool:
    """Return whether messages have reached the durability that they require."""
    durability = receipt.durability
    if durability is _FSYNC:
        return receipt.commit <= log.durable_commit
    return durability is _MEMORY or receipt.commit <= log.written_commit


def _settle_together(one: Receipt, other: Receipt) -> bool:
    """Return whether two receipts succeed or fail together."""
    return one.commit == other.commit and one.durability is other.durability

"""The audit log as a file of JSON lines, written by a thread.

    {"time":"2026-11-16T03:40:00.123456Z","event":"refused","principal":"panel",…}

A call of `record` only puts the event into a queue with a limit, so neither a slow disk nor a
client that causes many events delays the broker. Like events are counted (`audit_repeats.py`), and
the files have a limit of size and number, so the disk is not filled.
"""

import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from penstock.errors import CannotAudit
from penstock.limits import (
    AUDIT_BYTES_MAX,
    AUDIT_FILES_MAX,
    AUDIT_LIST_ENTRIES_MAX,
    AUDIT_TEXT_CHARACTERS_MAX,
    AUDIT_WAITING_EVENTS_MAX,
)
from penstock.ports.audit import AuditEvent, AuditValue
from penstock.server.audit_repeats import Repeats

__all__ = ["AuditLog"]

log = structlog.get_logger("penstock.audit")

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_MODE: Final = 0o600
_TICK_SECONDS: Final = 1.0
"""How often counts of like events are looked at."""
_STOP: Final = None


class AuditLog:
    """A `ports.Audit`. Any thread may call.

    The file is opened at once; raise CannotAudit if that fails. Later failures are logged, and
    their events are lost: the broker goes on.
    """

    def __init__(
        self,
        path: Path,
        *,
        bytes_max: int = AUDIT_BYTES_MAX,
        files_max: int = AUDIT_FILES_MAX,
        waiting_max: int = AUDIT_WAITING_EVENTS_MAX,
        repeats: Repeats | None = None,
    ) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._repeats = repeats or Repeats()
        self._lock = threading.Lock()  # of `_repeats` and `_dropped`
        self._dropped = 0
        self._queue: queue.Queue[bytes | None] = queue.Queue(waiting_max)
        self._reopening = threading.Event()
        self._failing = False
        try:
            self._file = _open(path)
        except OSError as error:
            raise CannotAudit(str(path), error.strerror or str(error)) from error
        self._thread = threading.Thread(target=self._run, name="penstock-audit", daemon=True)
        self._thread.start()

    # --- Recording --------------------------------------------------------------------------------

    def record(self, event: AuditEvent, /, **fields: AuditValue) -> None:
        """See ports.Audit."""
        with self._lock:
            if not self._repeats.admit(event, fields, time.monotonic()):
                return
        self._put(event, fields)

    def _put(self, event: AuditEvent, fields: Mapping[str, AuditValue]) -> None:
        try:
            self._queue.put_nowait(_line(event, fields))
        except queue.Full:
            with self._lock:
                self._dropped += 1

    def reopen(self) -> None:
        """Open the file again, after another program has renamed it."""
        self._reopening.set()

    def close(self, *, seconds_max: float = 2.0) -> None:
        """Write what waits, at most for `seconds_max`, and close the file."""
        with contextlib.suppress(queue.Full):
            self._queue.put(_STOP, timeout=seconds_max)
        self._thread.join(seconds_max)

    # --- In the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        ticked = time.monotonic()
        while True:
            try:
                line = self._queue.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                line = b""
            if line is _STOP:
                self._count(float("inf"))
                break
            self._write(line)
            if (now := time.monotonic()) - ticked >= _TICK_SECONDS:
                ticked = now
                self._count(now)
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _count(self, now: float) -> None:
        """Write the numbers of like events that were not written, and of dropped ones."""
        with self._lock:
            ended = self._repeats.ended(now)
            dropped, self._dropped = self._dropped, 0
        for event, fields in ended:
            self._write(_line(event, fields))
        if dropped:
            self._write(_line(AuditEvent.DROPPED, {"repeated": dropped}))

    def _write(self, line: bytes) -> None:
        try:
            if self._reopening.is_set():
                self._reopening.clear()
                self._open_again()
            if not line:
                return
            if os.fstat(self._file).st_size + len(line) > self._bytes_max:
                self._rotate()
            os.write(self._file, line)
        except OSError as error:
            if not self._failing:
                log.warning("audit log not written", path=str(self.path), error=str(error))
            self._failing = True
        else:
            if line and self._failing:
                self._failing = False
                log.info("audit log written again", path=str(self.path))

    def _rotate(self) -> None:
        """Rename the files: `audit.jsonl` becomes `audit.jsonl.1`, that becomes `.2`."""
        for number in range(self._files_max - 1, 0, -1):
            older = self.path if number == 1 else _numbered(self.path, number - 1)
            with contextlib.suppress(FileNotFoundError):
                older.replace(_numbered(self.path, number))
        self._open_again()

    def _open_again(self) -> None:
        new = _open(self.path)
        old, self._file = self._file, new
        os.close(old)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, _FLAGS, _MODE)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _line(event: AuditEvent, fields: Mapping[str, AuditValue]) -> bytes:
    """Return an event as a line of ASCII; control characters and all others are escaped."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
    found: dict[str, Any] = {"time": f"{now}Z", "event": str(event)}
    found.update((name, _shown(value)) for name, value in fields.items() if value is not None)
    text = json.dumps(found, separators=(",", ":"))  # escapes all but ASCII
    return text.replace("\x7f", "\\u007f").encode() + b"\n"


def _shown(value: AuditValue) -> AuditValue:
    if isinstance(value, str):
        return value[:AUDIT_TEXT_CHARACTERS_MAX]
    if value is None or isinstance(value, int):
        return value
    return [each[:AUDIT_TEXT_CHARACTERS_MAX] for each in value[:AUDIT_LIST_ENTRIES_MAX]]

"""State of a log that segments do not hold: `log.json` of a partition."""

from pathlib import Path
from typing import Final

import msgspec

from penstock._kernels.crc32c import crc32c
from penstock.errors import LogFormatTooNew
from penstock.storage.arrow.format.file_names import STATE
from penstock.storage.files import Files

__all__ = ["BadState", "LogState", "load_state", "save_state"]

FORMAT: Final = 1
"""Version of log.json; a later one is refused."""
_STATE_BYTES_MAX: Final = 4096


class BadState(ValueError):
    """A log.json that was changed or cannot be parsed."""


class LogState(msgspec.Struct, frozen=True):
    """The id of a log and its bounds.

    No offset below `next_offset` is assigned again, even if no segment has it. The segments once
    reached `end`; if they end earlier, some are missing. Segments that start below `horizon` are
    expired, whether they are removed yet or not.
    """

    log_id: int
    partition: int
    next_offset: int = 0
    end: int = 0
    horizon: int = 0


class _Version(msgspec.Struct, frozen=True):
    format: int


class _Document(_Version, frozen=True):
    log_id: str
    partition: int
    next_offset: int
    end: int
    horizon: int
    crc32c: str


def _checksum(state: LogState) -> str:
    numbers = (FORMAT, state.log_id, state.partition, state.next_offset, state.end, state.horizon)
    return f"{crc32c([' '.join(map(str, numbers)).encode()]):08x}"


def load_state(files: Files, folder: Path) -> LogState | None:
    """Read log.json; return None if it does not exist. Raise BadState or LogFormatTooNew."""
    path = folder / STATE
    try:
        data = files.read(path, 0, _STATE_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(data, type=_Version).format
        if found > FORMAT:
            raise LogFormatTooNew(str(path), found, FORMAT)
        document = msgspec.json.decode(data, type=_Document)
        state = LogState(
            log_id=int(document.log_id, 16),
            partition=document.partition,
            next_offset=document.next_offset,
            end=document.end,
            horizon=document.horizon,
        )
    except ValueError as error:
        raise BadState(f"{path} cannot be read: {error}") from error
    if data != _spelled(state):
        raise BadState(f"{path} is not what was written")
    return state


def save_state(files: Files, folder: Path, state: LogState) -> None:
    """Write log.json; it is on disk when this returns."""
    files.replace(folder / STATE, _spelled(state))


def _spelled(state: LogState) -> bytes:
    document = _Document(
        format=FORMAT,
        log_id=f"{state.log_id:012x}",
        partition=state.partition,
        next_offset=state.next_offset,
        end=state.end,
        horizon=state.horizon,
        crc32c=_checksum(state),
    )
    return msgspec.json.encode(document) + b"\n"

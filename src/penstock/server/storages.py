"""Opens the storage that the configuration asks for: the only module that names its class."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from penstock.errors import CannotKeep
from penstock.ports import Storage
from penstock.server.config import Config
from penstock.storage.memory import MemoryLog
from penstock.storage.session_numbers import SessionNumbers

__all__ = ["open_session_numbers", "open_storage"]

log = structlog.get_logger("penstock.run")


def open_storage(config: Config) -> Storage:
    """Open the storage and log what was recovered; raise OperatorError if it cannot be opened."""
    kind = "memory" if config.log_options is None else "arrow"
    return _FACTORIES[kind](config)


def open_session_numbers(config: Config, storage: Storage) -> SessionNumbers | None:
    """Return the kept session numbers beside the log; None for a broker without a log."""
    if config.log_options is None:
        return None
    from penstock.storage.arrow.format.file_names import partition_folder  # noqa: PLC0415

    return SessionNumbers(partition_folder(Path(config.data.folder), storage.partition))


def _open_memory(_config: Config) -> Storage:
    return MemoryLog()


def _open_arrow(config: Config) -> Storage:
    from penstock.storage.arrow.log import ArrowLog  # noqa: PLC0415  (imports pyarrow: slow)

    folder = Path(config.data.folder)
    try:
        opened = ArrowLog(folder, config.log_options)
    except (FileExistsError, NotADirectoryError) as error:
        raise CannotKeep(str(folder), "it is a file, or below one") from error
    except OSError as error:
        raise CannotKeep(str(folder), error.strerror or str(error)) from error
    for cut in opened.recovered.cuts:
        log.warning("torn tail cut off", **cut._asdict())
    for damage in opened.recovered.damage:
        log.error("part of the log cannot be read", **damage._asdict())
    return opened


_FACTORIES: Final[Mapping[str, Callable[[Config], Storage]]] = {
    "memory": _open_memory,
    "arrow": _open_arrow,
}
"""One factory for each kind of storage."""

"""Opens the storage that the configuration asks for: the only module that names its class."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from penstock.errors import CannotKeep, KafkaUnusable, OperatorError
from penstock.ports import Storage
from penstock.server.config import Config
from penstock.storage.memory import MemoryLog
from penstock.storage.session_numbers import KeptNumbers, SessionNumbers
from penstock.storage.stored_counts import KeptCounts, StoredCountsFile

__all__ = ["open_session_numbers", "open_storage", "open_stored_counts"]

log = structlog.get_logger("penstock.run")


Lost = Callable[[OperatorError], None]
"""Called when the storage cannot be used by this process any more."""


def open_storage(config: Config, *, lost: Lost | None = None) -> Storage:
    """Open the storage and log what was recovered; raise OperatorError if it cannot be opened.

    `lost` is called in the event loop's thread if another process takes the log over.
    """
    kind = "memory" if config.log_options is None else config.storage.kind
    return _FACTORIES[kind](config, lost)


def open_session_numbers(config: Config, storage: Storage) -> KeptNumbers | None:
    """Return the kept session numbers beside the log; None for a broker without a log."""
    if config.log_options is None:
        return None
    if config.storage.kind == "kafka":
        from penstock.storage.kafka.log import KafkaLog  # noqa: PLC0415

        return storage.numbers if isinstance(storage, KafkaLog) else None
    from penstock.storage.arrow.format.file_names import partition_folder  # noqa: PLC0415

    return SessionNumbers(partition_folder(Path(config.data.folder), storage.partition))


def open_stored_counts(config: Config, storage: Storage) -> KeptCounts | None:
    """Return what is kept of principals' bytes beside the log; None for a broker without a log."""
    if config.log_options is None:
        return None
    if config.storage.kind == "kafka":
        from penstock.storage.kafka.log import KafkaLog  # noqa: PLC0415

        return storage.stored_counts if isinstance(storage, KafkaLog) else None
    from penstock.storage.arrow.format.file_names import partition_folder  # noqa: PLC0415

    return StoredCountsFile(partition_folder(Path(config.data.folder), storage.partition))


def _open_memory(_config: Config, _lost: Lost | None) -> Storage:
    return MemoryLog()


def _open_arrow(config: Config, _lost: Lost | None) -> Storage:
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


def _open_kafka(config: Config, lost: Lost | None) -> Storage:
    options = config.kafka_options
    if options is None:
        raise AssertionError("the storage is not on Kafka")
    try:
        from penstock.storage.kafka.log import KafkaLog  # noqa: PLC0415
    except ModuleNotFoundError as error:
        reason = "confluent-kafka is not installed"
        raise KafkaUnusable(options.bootstrap, reason, "install penstock-broker[kafka]") from error
    folder = Path(config.data.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)  # for everything that is the node's own
    except OSError as error:
        raise CannotKeep(str(folder), error.strerror or str(error)) from error
    return KafkaLog(options, lost=lost)


_FACTORIES: Final[Mapping[str, Callable[[Config, Lost | None], Storage]]] = {
    "memory": _open_memory,
    "arrow": _open_arrow,
    "kafka": _open_kafka,
}
"""One factory for each kind of storage."""

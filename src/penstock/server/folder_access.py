"""Access of other users to the folder of the log."""

from pathlib import Path

import structlog

from penstock.server.config import Config

__all__ = ["warn_of_open_folder"]

log = structlog.get_logger("penstock.run")


def warn_of_open_folder(config: Config) -> None:
    """Log a warning if other users may enter the data folder. Existing folders are not changed."""
    folder = Path(config.data.folder)
    if config.broker.durability == "memory" or not folder.is_dir():
        return
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:
        log.warning("data folder open to other users", folder=str(folder), mode=f"{mode:04o}")

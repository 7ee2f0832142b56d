"""Finds the record of last messages that fits the segments of a log."""

import structlog

from penstock.storage.arrow.format.index_file import StaleIndex, load_summary
from penstock.storage.arrow.format.last_messages_file import (
    LastMessages,
    StaleLastMessages,
    load_last_messages,
)
from penstock.storage.arrow.read.catalog import ActiveSegment, Catalog
from penstock.storage.files import Files

__all__ = ["fitting_last_messages"]

log = structlog.get_logger("penstock.log")


def fitting_last_messages(files: Files, catalog: Catalog) -> tuple[LastMessages, int] | None:
    """Return the record and its size in bytes; None if there is none, or it is of another log.

    A folder may have been copied while the broker wrote, or restored with other segments. Raise
    OSError.
    """
    try:
        found = load_last_messages(files, catalog.folder)
    except StaleLastMessages as error:
        log.warning("record of last messages not used", error=str(error))
        return None
    if found is None:
        return None
    for segment in catalog.segments_from(found[0].end - 1):
        if segment.end_offset == found[0].end and not isinstance(segment, ActiveSegment):
            try:
                summary = load_summary(files, catalog.folder, segment.base_offset)
            except StaleIndex:
                return None
            return found if summary.last_crc == found[0].last_crc else None
    return None

"""Selects the record that is the state of a sink's writer.

Each process has a record of its own for each writer that it has published for, so that no process
overwrites the record of another one, even if it writes late. A record has a turn, one more than
that of the state that the process has read. The record with the highest turn is the state. If two
processes stored the same turn, the first of the two records counts, and the other process gives up.
"""

import msgspec

from penstock.ports.sinks import SinkWriter

__all__ = ["SinkRecords"]


class SinkRecords:
    """The records of writers that were read so far. Not thread-safe."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, tuple[SinkWriter, int]]] = {}  # by writer and process

    def note(self, key: str, value: bytes | None, place: int | None) -> bool | None:
        """Note a record, `WRITER/PROCESS` in `key`; return whether it counts, None if ignored.

        `place` is None if it is not known; then the record keeps the place of the last one.
        """
        writer, _, process = key.rpartition("/")
        if value is None:
            records = self._found.get(writer, {})
            records.pop(process, None)
            if not records:
                self._found.pop(writer, None)
            return False
        try:
            state = msgspec.json.decode(value, type=SinkWriter)
        except ValueError:
            return None
        records = self._found.setdefault(writer, {})
        known, known_place = records.get(process, (None, 0))
        if known is not None and known.turn > state.turn:
            return None  # an older record, from a reader that lags
        records[process] = (state, known_place if place is None else place)
        return True

    def find(self, writer: str) -> SinkWriter | None:
        """Return the state of a writer; None if it has none."""
        records = self._ordered(writer)
        return records[-1] if records else None

    def _ordered(self, writer: str) -> list[SinkWriter]:
        """Return the records of a writer; the last one is its state."""
        records = self._found.get(writer, {}).values()
        return [state for state, _ in sorted(records, key=lambda each: (each[0].turn, -each[1]))]

    def processes(self, writer: str) -> list[tuple[str, int]]:
        """Return processes with a record of a writer, and their nodes; the last has the state."""
        return [(each.process, each.node) for each in self._ordered(writer)]

    def all(self) -> dict[str, SinkWriter]:
        """Return the states of all writers."""
        return {writer: self._ordered(writer)[-1] for writer in self._found}

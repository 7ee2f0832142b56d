"""Horizons of topics: the messages that `[[retention]]` has expired in segments that are kept.

A rule is known by its patterns. All its topics have the rule's horizon, or, if only last messages
are kept, each has the offset of its own last message. Horizons never go back: what has expired
stays so when settings change. They are in `topic-horizons.arrow` of a partition, an Arrow stream of
one batch with the last messages; the rules are in its metadata.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock._kernels.crc32c import crc32c
from penstock.limits import TOPIC_HORIZONS_NAMES_MAX
from penstock.patterns import canonical_pattern, compile_pattern, covers, overlaps
from penstock.ports.text_columns import name_list, text_column
from penstock.storage.arrow.format.file_names import HORIZONS
from penstock.storage.files import Files

__all__ = [
    "NO_HORIZONS",
    "BadHorizons",
    "RuleHorizon",
    "TopicHorizons",
    "known_horizons",
    "load_horizons",
    "save_horizons",
]

log = structlog.get_logger("penstock.log")

FORMAT: Final = "1"
_SCHEMA: Final = pa.schema([("rule", pa.int32()), ("topic", pa.utf8()), ("offset", pa.int64())])
_MARK: Final = b"crc32c="
_ZEROS: Final = b"00000000"


class BadHorizons(ValueError):
    """A file of horizons that was changed or cannot be parsed."""


class RuleHorizon(msgspec.Struct, frozen=True):
    """The horizon of the topics that match `topics`, and none of `excluded`.

    With `last` None, their messages below `horizon` have expired. Otherwise `last` has the offset
    of the last message below `horizon` of each topic, and the messages before that have expired.
    """

    topics: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    horizon: int = 0
    last: Mapping[str, int] | None = None

    def of(self, name: str) -> int:
        """Return the horizon of a topic that the rule is for."""
        return self.horizon if self.last is None else self.last.get(name, 0)


class _Matcher:
    """Finds the rules of a topic. Rules that differ in their horizons alone share one."""

    def __init__(self, rules: Sequence[RuleHorizon]) -> None:
        self._rules = [(_tests(rule.topics), _tests(rule.excluded)) for rule in rules]
        self._known: dict[str, tuple[int, ...]] = {}

    def find(self, name: str) -> tuple[int, ...]:
        found = self._known.get(name)
        if found is None:
            found = tuple(
                number
                for number, (topics, excluded) in enumerate(self._rules)
                if _passes(topics, name) and not _passes(excluded, name)
            )
            if len(self._known) >= TOPIC_HORIZONS_NAMES_MAX:
                self._known.clear()
            self._known[name] = found
        return found


_Test = tuple[str, "re.Pattern[str] | None"]


def _tests(patterns: Sequence[str]) -> list[_Test]:
    return [(text, compile_pattern(text)) for text in patterns]


def _passes(tests: Sequence[_Test], name: str) -> bool:
    return any(
        text == name if expression is None else expression.fullmatch(name) is not None
        for text, expression in tests
    )


class TopicHorizons:
    """The horizons of all topics at one moment. It does not change; any thread may ask it."""

    def __init__(
        self, rules: Sequence[RuleHorizon] = (), *, before: "TopicHorizons | None" = None
    ) -> None:
        self.rules = tuple(rules)
        self.highest = max((rule.horizon for rule in rules), default=0)
        """No message from this offset on has expired."""
        same = before is not None and _names(before.rules) == _names(self.rules)
        self.matcher: _Matcher = (
            before.matcher if before is not None and same else _Matcher(self.rules)
        )
        """Finds the rules of a topic; it remembers names."""

    def __bool__(self) -> bool:
        return self.highest > 0

    def __getstate__(self) -> tuple[RuleHorizon, ...]:
        """Leave out what is cached, and the last messages, which may be many."""
        return tuple(msgspec.structs.replace(rule, last=rule.last and {}) for rule in self.rules)

    def __setstate__(self, rules: tuple[RuleHorizon, ...]) -> None:
        self.__init__(rules)  # type: ignore[misc]

    @property
    def keeps_last(self) -> bool:
        """Whether some rule keeps last messages only."""
        return any(rule.last is not None for rule in self.rules)

    def with_last_of(self, other: "TopicHorizons") -> "TopicHorizons":
        """Return these horizons with the last messages of others, which come from the file."""
        known = {(rule.topics, rule.excluded): rule.last for rule in other.rules}
        return TopicHorizons(
            [
                rule
                if rule.last is None
                else msgspec.structs.replace(
                    rule, last=known.get((rule.topics, rule.excluded)) or {}
                )
                for rule in self.rules
            ]
        )

    def of(self, name: str) -> int:
        """Return the horizon of a topic: its messages below it have expired."""
        return max((self.rules[number].of(name) for number in self.matcher.find(name)), default=0)

    def of_pattern(self, pattern: str) -> int:
        """Return an offset below which the messages of all topics of a pattern have expired."""
        if canonical_pattern(pattern).levels is None:
            return self.of(pattern)
        return max(
            (
                rule.horizon
                for rule in self.rules
                if rule.last is None
                and any(covers(each, pattern) for each in rule.topics)
                and not any(overlaps(each, pattern) for each in rule.excluded)
            ),
            default=0,
        )

    def highest_of(self, pattern: str) -> int:
        """Return an offset below which messages of some topic of a pattern may have expired.

        Rules that keep last messages are left out: they remove only what a later message replaced.
        """
        return max(
            (
                rule.horizon
                for rule in self.rules
                if rule.last is None
                and any(overlaps(each, pattern) for each in rule.topics)
                and not any(covers(each, pattern) for each in rule.excluded)
            ),
            default=0,
        )

    def of_names(self, names: Sequence[str], base_offset: int) -> list[int] | None:
        """Return the horizons of some topics; None if all are at or below `base_offset`."""
        if self.highest <= base_offset:
            return None
        found = [self.of(name) for name in names]
        return found if max(found, default=0) > base_offset else None

    def shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have not expired, of a batch with at least `topic` and `offset`."""
        if not len(batch) or self.highest <= batch.column("offset")[0].as_py():
            return batch
        column = batch.column("topic")
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        floors = self.of_names(name_list(column.dictionary), batch.column("offset")[0].as_py())
        if floors is None:
            return batch
        limits = pc.take(pa.array(floors, pa.int64()), column.indices)
        return batch.filter(pc.greater_equal(batch.column("offset"), limits))


def _names(rules: Sequence[RuleHorizon]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(rule.topics, rule.excluded) for rule in rules]


NO_HORIZONS: Final = TopicHorizons()


# --- The file


class _Rule(msgspec.Struct, frozen=True):
    topics: tuple[str, ...]
    excluded: tuple[str, ...]
    horizon: int
    last: bool


def save_horizons(files: Files, folder: Path, horizons: TopicHorizons) -> None:
    """Write the horizons; they are on disk when this returns."""
    rules = [
        _Rule(each.topics, each.excluded, each.horizon, each.last is not None)
        for each in horizons.rules
    ]
    columns = [
        (number, topic, offset)
        for number, rule in enumerate(horizons.rules)
        for topic, offset in (rule.last or {}).items()
    ]
    numbers, topics, offsets = zip(*columns, strict=True) if columns else ((), (), ())
    schema = _SCHEMA.with_metadata(
        {
            "penstock.horizons_format": FORMAT,
            "penstock.rules": msgspec.json.encode(rules).decode(),
            "penstock.crc32c": (_MARK + _ZEROS).decode(),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        arrays = [pa.array(numbers, pa.int32()), text_column(topics), pa.array(offsets, pa.int64())]
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    data = bytearray(sink.getvalue())
    place = data.index(_MARK) + len(_MARK)
    data[place : place + len(_ZEROS)] = f"{crc32c([data]):08x}".encode()
    files.replace(folder / HORIZONS, data)


def load_horizons(files: Files, folder: Path) -> TopicHorizons:
    """Read the horizons of a partition; there are none without a file. Raise BadHorizons."""
    path = folder / HORIZONS
    try:
        data = files.read(path, 0, files.size(path))
    except FileNotFoundError:
        return NO_HORIZONS
    try:
        place = data.index(_MARK) + len(_MARK)
        view = memoryview(data)
        checksum = crc32c([view[:place], _ZEROS, view[place + len(_ZEROS) :]])
        if int(data[place : place + len(_ZEROS)], 16) != checksum:
            raise BadHorizons(f"{path} is not what was written")
        with pa.ipc.open_stream(data) as reader:
            metadata = reader.schema.metadata
            if metadata[b"penstock.horizons_format"] != FORMAT.encode():
                raise BadHorizons(f"{path} has another format")
            rules = msgspec.json.decode(metadata[b"penstock.rules"], type=list[_Rule])
            batch = reader.read_next_batch()
        last: list[dict[str, int]] = [{} for _ in rules]
        for number, topic, offset in zip(
            batch.column(0).to_pylist(),
            name_list(batch.column(1)),
            batch.column(2).to_pylist(),
            strict=True,
        ):
            last[number][topic] = offset
        return TopicHorizons(
            [
                RuleHorizon(
                    rule.topics, rule.excluded, rule.horizon, last[number] if rule.last else None
                )
                for number, rule in enumerate(rules)
            ]
        )
    except (ValueError, KeyError, IndexError, StopIteration, pa.ArrowException) as error:
        if isinstance(error, BadHorizons):
            raise
        raise BadHorizons(f"{path} cannot be read: {error}") from error


def known_horizons(files: Files, folder: Path) -> TopicHorizons:
    """Read the horizons of a partition; if they cannot be read, log that and return none.

    No message is lost then: some that have expired can be read until retention runs again.
    """
    try:
        return load_horizons(files, folder)
    except (BadHorizons, OSError) as error:
        log.warning("horizons of topics not readable", error=str(error))
        return NO_HORIZONS

"""Row groups for the Arrow fuzzer: whole ones, damaged ones, and a check of what takes them."""

import contextlib
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock._kernels import stored
from penstock._kernels.batch import Batch
from penstock._kernels.crc32c import crc32c, crc32c_each
from penstock.errors import ValueNotDeliverable
from penstock.protocols import PROTOCOLS as REGISTRY
from penstock.storage.arrow.format.segment import (
    BadRowGroup,
    RowGroup,
    buffer_regions,
    check_row_group,
    parse_head,
    parse_row_group,
)
from penstock.storage.schema import KINDS, PROTOCOLS
from tests.fuzz.arrow_mutate import damaged
from tests.support.agreement import kernel_encode, new_topics

GOLDEN = Path(__file__).parents[1] / "golden"
WORDS = stored.SegmentWords(PROTOCOLS, KINDS)
TOPICS = new_topics()
"""Shared by all inputs of a process: a new table takes longer than an input."""


class Surface(NamedTuple):
    """Something that takes Arrow: seeds, a way to damage them, and a check of the result."""

    seeds: Callable[[], Sequence[bytes]]
    damage: Callable[[bytes, random.Random], bytes]
    check: Callable[[bytes], bool]
    """Returns whether the input was accepted."""


def delivered(load: Callable[[Batch], None], batch: Batch) -> None:
    """Load rows into a batch, and encode them for every protocol."""
    load(batch)
    for protocol in REGISTRY:
        with contextlib.suppress(ValueNotDeliverable):
            kernel_encode(protocol, "little", batch, TOPICS)
    for row in range(len(batch)):
        batch.value(row), batch.headers(row), batch.sender(row), batch.row_timestamp_us(row)
        batch.status(row), batch.created(row), batch.form(row), batch.row_protocol(row)


class _Folder:
    """A folder in memory, if there is one."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")  # noqa: S108
        place = memory if memory.is_dir() else None
        self._temporary = tempfile.TemporaryDirectory(prefix="penstock-fuzz-", dir=place)
        self.path = Path(self._temporary.name)


_folder: _Folder | None = None


def folder() -> Path:
    global _folder  # noqa: PLW0603 - one for the process
    if _folder is None:
        _folder = _Folder()
    return _folder.path


def segments() -> Sequence[bytes]:
    return [
        next((each / "log" / "0").glob("*.arrows")).read_bytes()
        for each in sorted(GOLDEN.iterdir())
        if (each / "rows.jsonl").exists()
    ]


def row_groups() -> Sequence[bytes]:
    found = []
    for segment in segments():
        place = parse_head(segment).size
        while len(segment) - place > 8:
            group = parse_row_group(segment, place)
            found.append(segment[place : place + group.size])
            place += group.size
    return found


def resealed(data: bytes, start: int = 0) -> bytes:
    """Give damaged row groups checksums that are right, as if they had been written so."""
    out = bytearray(data)
    while True:
        try:
            group = parse_row_group(out, start)
            place = group.crc_position
            if not start <= place <= start + group.size - 8:
                return bytes(out)
        except BadRowGroup:
            return bytes(out)
        out[place : place + 8] = b"00000000"
        covered = start, start + group.size
        if group.checksums:
            covered = group.record_start, group.body_start
            _reseal_buffers(out, group)
        out[place : place + 8] = b"%08x" % crc32c([bytes(out[slice(*covered)])])
        start += group.size


def _reseal_buffers(out: bytearray, group: RowGroup) -> None:
    """Correct the checksums of dictionaries and buffers, of those that can have one."""
    spelled = b"".join(b"%08x" % each for each in group.checksums)
    place = out.find(spelled, group.record_start, group.body_start)
    try:
        regions = buffer_regions(group)
    except BadRowGroup:
        return
    parts = [
        (group.start, group.sender_start),
        (group.sender_start, group.record_start),
        *regions,
    ]
    found = crc32c_each([bytes(out[first:last]) for first, last in parts])
    if place >= 0:
        out[place : place + len(spelled)] = b"".join(b"%08x" % each for each in found)


def damaged_group(seed: bytes, choose: random.Random) -> bytes:
    data = damaged(seed, choose)
    return resealed(data) if choose.random() < 0.8 else data


def check_group(data: bytes) -> bool:
    try:
        group = parse_row_group(data)
        check_row_group(data, group)

        def load(batch: Batch) -> None:
            places = (group.layout, group.topic_layout, group.sender_layout)
            stored.load(batch, TOPICS, data, *places, WORDS, count=group.count)

        delivered(load, Batch())
    except ValueError:
        return False
    return True


def damaged_alone(seed: bytes, choose: random.Random) -> bytes:
    """A damaged row group without an end of the stream."""
    data = damaged_group(seed, choose)
    try:
        return data[: parse_row_group(data).size]
    except BadRowGroup:
        return data

"""A plain encoder of row groups, with which the kernel is compared."""

import struct
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

from penstock._kernels.crc32c import crc32c, crc32c_each
from penstock.storage.arrow.format.segment import _BATCH, _SENDERS, _TEXTS, _TOPICS, Columns

__all__ = ["plain_row_group"]

NODES = 20
HEADER_NODES = (8, 9, 10)
NULLABLE_NODES = (0, 14, 15, 16)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _filled(
    template: Any, count: int, nodes: Sequence[int], buffers: Sequence[int], body: int
) -> bytearray:
    metadata = bytearray(template.metadata)
    struct.pack_into("<q", metadata, template.body_length, body)
    struct.pack_into("<q", metadata, template.length, count)
    for numbers, (layout, position) in (
        (nodes, template.nodes),
        (buffers, template.buffers),
    ):
        layout.pack_into(metadata, position, *numbers)
    return metadata


def _dictionary(template: Any, names: Collection[bytes]) -> bytes:
    count = len(names)
    ends = struct.pack(f"<{count + 1}i", *accumulate(map(len, names), initial=0))
    data = b"".join(names)
    body = _padded(ends) + _padded(data)
    buffers = (0, 0, 0, len(ends), len(_padded(ends)), len(data))
    return bytes(_filled(template, count, (count, 0), buffers, len(body))) + body


def plain_row_group(columns: Columns, *, previous: int, synced: int) -> tuple[bytes, int]:
    """Return the bytes of a row group and its checksum."""
    topics = _dictionary(_TOPICS, list(columns.topics))
    senders = _dictionary(_SENDERS, list(columns.senders))
    zeros = max((each for each in columns.buffers if isinstance(each, int)), default=0)
    zeros += -zeros % 8
    body = bytes(zeros)
    positions: list[int] = []
    checksums = crc32c_each([topics, senders])
    for buffer in columns.buffers:
        if isinstance(buffer, int):
            positions += (0, buffer)
            checksums.append(crc32c([bytes(zeros)]) if buffer else 0)
        else:
            positions += (len(body), len(buffer))
            checksums.append(crc32c([_padded(bytes(buffer))]) if len(buffer) else 0)
            body += _padded(bytes(buffer))
    nodes = [columns.count, 0] * NODES
    for node in HEADER_NODES:
        nodes[2 * node] = columns.header_count
    for node, null_count in zip(NULLABLE_NODES, columns.null_counts, strict=True):
        nodes[2 * node + 1] = null_count
    metadata = _filled(_BATCH, columns.count, nodes, positions, len(body))
    texts = (
        b"%020d" % columns.base_offset,
        b"%010d" % columns.count,
        b"%020d" % synced,
        b"%08x" % previous,
        b"%010d" % zeros,
        b"".join(b"%08x" % each for each in checksums),
    )
    *places, crc_place = (slice(*_BATCH.texts[key]) for key in _TEXTS)
    for place, text in zip(places, texts, strict=True):
        metadata[place] = text
    checksum = crc32c([metadata])
    metadata[crc_place] = b"%08x" % checksum
    return topics + senders + bytes(metadata) + body, checksum

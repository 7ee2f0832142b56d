"""Damaged Arrow by Flight: the broker refuses it, goes on, and stores and shows nothing of it."""

import contextlib
import random
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidTopicName, PenstockError
from penstock.flight.client import FlightClient
from penstock.flight.errors import BadRequest, BadRows
from penstock.flight.protocol import SINK_SCHEMA
from tests.support.flight import rows, table
from tests.support.running import Running, run

SEED = 20261116
SECONDS = 8.0
MUTANTS_MAX = 3_000
SECRET = b"of another topic"
REFUSALS = (BadRows, BadRequest, InvalidTopicName)
HEADERS = SINK_SCHEMA.field("headers").type
_FLIGHT = re.compile(r"  flight  (grpc://127\.0\.0\.1:\d+) ")


@contextlib.contextmanager
def serving(data: Path) -> Iterator[tuple[Running, FlightClient]]:
    """A broker in a process of its own, which may crash alone."""
    place = ("--listen", "tcp://127.0.0.1:0", "--flight", "127.0.0.1:0", "--data", data)
    with Running("serve", *place) as broker:
        lines = [broker.line()]
        while lines[-1] != "Ready.":
            lines.append(broker.line())
        found = _FLIGHT.search("\n".join(lines))
        assert found, lines
        with FlightClient(found[1]) as client:
            yield broker, client


def publish(client: FlightClient, batch: pa.RecordBatch, *, writer: str, epoch: int = 0) -> None:
    client.stage([batch], writer=writer, epoch=epoch, partition=0)
    client.publish_epoch(writer, epoch, [0])


def ints(*numbers: int) -> pa.Buffer:
    return pa.array(numbers, pa.int32()).buffers()[1]


def texts(kind: pa.DataType, data: bytes, *ends: int, valid: bytes | None = None) -> pa.Array:
    """A column of byte strings whose offsets are these, whatever they are."""
    bits = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, len(ends) - 1, [bits, ints(*ends), pa.py_buffer(data)])


def lists(entries: pa.Array, *ends: int) -> pa.Array:
    return pa.Array.from_buffers(HEADERS, len(ends) - 1, [None, ints(*ends)], children=[entries])


def entries(keys: pa.Array, values: pa.Array) -> pa.Array:
    kind = HEADERS.value_type
    return pa.Array.from_buffers(kind, len(keys), [None], children=[keys, values])


def batch(**columns: pa.Array) -> pa.RecordBatch:
    given = {"topic": pa.array(["a", "b"]), "value": pa.array([b"v", b"w"]), **columns}
    return pa.RecordBatch.from_arrays(list(given.values()), names=list(given))


def ends_beyond() -> pa.RecordBatch:
    """A batch that was whole when pyarrow made it: pyarrow looks at the last offset."""
    offsets = bytearray(12)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"ab")]
    found = batch(topic=pa.Array.from_buffers(pa.utf8(), 2, buffers))
    struct.pack_into("<3i", offsets, 0, 0, 1, 1 << 16)
    return found


def nothing(count: int) -> pa.Array:
    """Nulls without a byte of memory."""
    return pa.Array.from_buffers(pa.null(), count, [None])


def shared_views() -> pa.RecordBatch:
    """Values that are views of the same megabyte. Arrow casts views of nulls unchecked, too."""
    count = 2000
    view = struct.pack("<iiii", 1 << 20, 0, 0, 0)
    buffers = [None, pa.py_buffer(view * count), pa.py_buffer(bytes(1 << 20))]
    value = pa.Array.from_buffers(pa.binary_view(), count, buffers)
    return batch(topic=pa.array(["t"] * count), value=value)


def expanding_headers() -> pa.RecordBatch:
    """Headers whose keys are the same megabyte."""
    count = 2000
    words = pa.array(["k" * (1 << 20)])
    keys = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int16()), words)
    entry = pa.StructArray.from_arrays([keys, pa.array([b""] * count)], names=["key", "value"])
    ends = pa.array(range(count + 1), pa.int32())
    return batch(
        topic=pa.array(["t"] * count),
        value=pa.array([b""] * count),
        headers=pa.ListArray.from_arrays(ends, entry),
    )


ONE = entries(pa.array(["k"]), pa.array([b"v"]))
DAMAGED = {
    "topic beyond its data": batch(topic=texts(pa.utf8(), b"ab", 0, 1 << 20, 2)),
    "topic far beyond its data": batch(topic=texts(pa.utf8(), b"ab", 0, 1 << 30, 2)),
    "topic before its data": batch(topic=texts(pa.utf8(), b"ab", 0, -(1 << 20), 2)),
    "topic ends beyond its data": ends_beyond(),
    "topic not UTF-8": batch(topic=texts(pa.utf8(), b"a\xff", 0, 1, 2)),
    "value beyond its data": batch(value=texts(pa.binary(), b"ab", 0, 5000, 2)),
    "key beyond its data": batch(key=texts(pa.binary(), b"ab", 0, 5000, 2)),
    "key before its data": batch(key=texts(pa.binary(), b"ab", 0, -5000, 2)),
    "headers beyond their entries": batch(headers=lists(ONE, 0, 5000, 1)),
    "headers before their entries": batch(headers=lists(ONE, 0, -5000, 1)),
    "header key beyond its data": batch(
        headers=lists(entries(texts(pa.utf8(), b"kl", 0, 5000, 2), pa.array([b"", b""])), 0, 1, 2)
    ),
    "header key not UTF-8": batch(
        headers=lists(entries(texts(pa.utf8(), b"\xff", 0, 1), pa.array([b""])), 0, 0, 1)
    ),
    "header value beyond its data": batch(
        headers=lists(entries(pa.array(["", ""]), texts(pa.binary(), b"kl", 0, 5000, 2)), 0, 1, 2)
    ),
    "dictionary index beyond its words": batch(
        topic=pa.DictionaryArray.from_arrays(
            pa.array([0, 100_000], pa.int32()), pa.array(["a"]), safe=False
        )
    ),
    "dictionary index below zero": batch(
        topic=pa.DictionaryArray.from_arrays(
            pa.array([0, -100_000], pa.int32()), pa.array(["a"]), safe=False
        )
    ),
    "dictionary word beyond its data": batch(
        topic=pa.DictionaryArray.from_arrays(
            pa.array([0, 1], pa.int8()), texts(pa.utf8(), b"ab", 0, 5000, 2)
        )
    ),
    "null topic": batch(topic=texts(pa.utf8(), b"ab", 0, 1, 2, valid=b"\1")),
    "topics without values": batch(topic=pa.nulls(2)),
    "a dictionary that expands": batch(
        topic=pa.array(["t"] * 4000),
        value=pa.DictionaryArray.from_arrays(
            pa.array([0] * 4000, pa.int16()), pa.array([bytes(1 << 20)])
        ),
    ),
    "a dictionary in headers that expands": expanding_headers(),
    "views that share their bytes": shared_views(),
    "entries without bytes": batch(
        headers=pa.Array.from_buffers(
            pa.list_(pa.null()),
            2,
            [None, ints(0, 1 << 30, (1 << 31) - 1)],
            children=[nothing(1 << 31)],
        )
    ),
    "lists without bytes": batch(
        headers=pa.FixedSizeListArray.from_arrays(nothing(1 << 30), 1 << 29)
    ),
    "views of lists": batch(headers=pa.array([[None], [None]], pa.list_view(pa.null()))),
    "runs": batch(value=pa.RunEndEncodedArray.from_arrays([2], pa.array([b"v"]))),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, FlightClient]]:
    with serving(tmp_path_factory.mktemp("rows")) as found:
        publish(found[1], rows([SECRET] * 1000, topic="secret"), writer="secret")
        yield found


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_column_is_refused_by_name(
    broker: tuple[Running, FlightClient], name: str
) -> None:
    running, client = broker
    with pytest.raises(BadRows):
        client.stage([DAMAGED[name]], writer="w", epoch=0, partition=0)
    assert running.popen.poll() is None
    assert client.bounds()[0].end == 1000


def seeds() -> list[pa.RecordBatch]:
    count = 12
    plain = rows(
        [b"value %d" % number * (number % 4) for number in range(count)],
        topics=[f"fuzz/{number % 3}" for number in range(count)],
        key=[None if number % 3 else b"key %d" % number for number in range(count)],
        headers=[
            None
            if number == 5
            else [{"key": "k" * each, "value": b"x"} for each in range(number % 3)]
            for number in range(count)
        ],
    )
    return [
        plain,
        plain.slice(3, 7),
        plain.select(["topic", "value"]),
        pa.record_batch(
            {
                "topic": plain.column("topic").dictionary_encode(),
                "value": plain.column("value").cast(pa.large_binary()),
                "key": plain.column("key").cast(pa.large_binary()),
            }
        ),
    ]


def mutant(seed: pa.RecordBatch, chance: random.Random) -> pa.RecordBatch | None:
    """A batch whose IPC message has other numbers or bits; None if it cannot even be sent."""
    message = pa.ipc.read_message(_plain(seed).serialize())
    body = bytearray(message.body.to_pybytes())
    metadata = bytearray(message.metadata.to_pybytes())
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        target = metadata if chance.random() < 0.15 else body
        place = chance.randrange(len(target) // 4) * 4
        number = chance.choice(
            (0, 1, -1, 2, 7, 255, 4096, 1 << 20, (1 << 31) - 1, -(1 << 31), chance.getrandbits(31))
        )
        if chance.random() < 0.5:
            old = int.from_bytes(target[place : place + 4], "little")
            number = old ^ 1 << chance.randrange(31)
        target[place : place + 4] = (number & 0xFFFFFFFF).to_bytes(4, "little")
    whole = (
        b"\xff\xff\xff\xff" + len(metadata).to_bytes(4, "little") + bytes(metadata) + bytes(body)
    )
    try:
        found = pa.ipc.read_record_batch(pa.py_buffer(whole), _plain(seed).schema)
        found = _encoded(found, seed)
        found.validate()  # else the sender itself could crash
    except (pa.ArrowException, OSError):
        return None
    return found


def _plain(seed: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the indices of a dictionary in place of its words."""
    columns = [each.indices if pa.types.is_dictionary(each.type) else each for each in seed.columns]
    return pa.RecordBatch.from_arrays(columns, names=seed.schema.names)


def _encoded(found: pa.RecordBatch, seed: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pa.DictionaryArray.from_arrays(each, old.dictionary, safe=False)
        if pa.types.is_dictionary(old.type)
        else each
        for each, old in zip(found.columns, seed.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=seed.schema.names)


def is_whole(given: pa.RecordBatch) -> bool:
    try:
        given.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def stored(given: pa.RecordBatch) -> list[dict[str, Any]]:
    """What the log has of rows that were accepted."""
    found = []
    for row in given.to_pylist():
        headers = [
            {"key": each["key"] or "", "value": each["value"] or b""} if each else _NO_HEADER
            for each in row.get("headers") or ()
        ]
        key, value = row.get("key"), row["value"] or b""
        found.append({"topic": row["topic"], "value": value, "key": key, "headers": headers})
    return found


_NO_HEADER = {"key": "", "value": b""}


def test_mutants_of_rows_are_refused_or_stored_as_they_were_sent(
    tmp_path: Path, record_property: Any
) -> None:
    chance = random.Random(SEED)
    accepted: list[dict[str, Any]] = []
    tried = refused = epoch = 0
    data = tmp_path / "data"
    with serving(data) as (broker, client):
        publish(client, rows([SECRET] * 1000, topic="secret"), writer="secret")
        deadline = time.monotonic() + SECONDS
        while tried < MUTANTS_MAX and time.monotonic() < deadline:
            given = mutant(chance.choice(seeds()), chance)
            if given is None:
                continue
            tried += 1
            try:
                client.stage([given], writer="w", epoch=epoch, partition=0)
            except REFUSALS:
                refused += 1
                continue
            except PenstockError as error:
                error.add_note(f"after {tried} mutants; exit code {broker.popen.poll()}")
                raise
            assert is_whole(given), f"mutant {tried} was accepted"
            if len(given) and chance.random() < 0.1:
                client.publish_epoch("w", epoch, [0])
                accepted += stored(given)
                epoch += 1
        assert broker.popen.poll() is None
        columns = ["topic", "value", "key", "headers"]
        found = table(client, columns=columns).to_pylist()
        assert found[1000:] == accepted
        assert {row["topic"] for row in found[:1000]} == {"secret"}
        assert not any(SECRET in repr(row).encode() for row in accepted)
    record_property("mutants", tried)
    assert tried > 300
    assert refused > tried // 10
    assert accepted
    assert run("log", "verify", "--data", data).code == 0

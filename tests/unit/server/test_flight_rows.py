"""Rows of clients of Flight: their types, and the topics that they name."""

import pyarrow as pa
import pytest

from penstock.flight.errors import BadRows
from penstock.limits import SINK_EXPANDED_BYTES_MAX
from penstock.server.flight.rows import RowCheck, check_columns, expanded_bytes
from tests.support.flight import rows


def test_a_dictionary_may_not_expand_to_far_more_than_it_has() -> None:
    value = bytes(1 << 20)
    count = SINK_EXPANDED_BYTES_MAX // len(value) + 1
    column = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))
    with pytest.raises(BadRows, match="expanded"):
        RowCheck(lambda _: None).rows(
            pa.record_batch({"topic": pa.array(["t"] * count), "value": column})
        )


def test_a_batch_counts_with_the_size_that_its_dictionaries_stand_for() -> None:
    word, count = bytes(10_000), 64
    words = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([word]))
    names = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["h"]))
    entries = pa.StructArray.from_arrays([names, words], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), entries)
    batch = pa.record_batch({"topic": ["t"] * count, "value": words, "headers": headers})
    assert batch.nbytes < 30_000
    assert 0 <= expanded_bytes(batch) - 2 * count * len(word) < 40_000


def test_a_batch_that_no_memory_would_be_drawn_for_is_refused_for_good() -> None:
    """Otherwise the client would send it again and again."""
    word = bytes(SINK_EXPANDED_BYTES_MAX // 15)
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 10, pa.int32()), pa.array([word]))
    batch = pa.record_batch({"topic": ["t"] * 10, "value": words, "key": words})
    with pytest.raises(BadRows, match="send fewer at a time"):
        expanded_bytes(batch)


def test_the_right_to_a_topic_is_checked_once() -> None:
    checked: list[str] = []
    check = RowCheck(checked.append)
    for _ in range(2):
        check.rows(rows([b"x", b"y"]))
    assert len(checked) == len(set(checked)) == 1


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        (pa.binary(), False),
        (pa.map_(pa.string(), pa.binary()), False),
        (pa.dictionary(pa.int32(), pa.string()), False),
        (pa.binary_view(), True),
        (pa.string_view(), True),
        (pa.list_view(pa.binary()), True),
        (pa.large_list_view(pa.binary()), True),
        (pa.run_end_encoded(pa.int32(), pa.binary()), True),
        (pa.dictionary(pa.int32(), pa.string_view()), True),
        (pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary_view())])), True),
        (pa.sparse_union([]), True),  # Arrow crashed when it made an array of it
        (pa.dense_union([pa.field("a", pa.binary())]), True),
        (pa.list_(pa.dense_union([])), True),
        (pa.month_day_nano_interval(), True),
    ],
    ids=str,
)
def test_types_that_are_dangerous_or_of_no_use_are_refused(
    kind: pa.DataType, *, refused: bool
) -> None:
    schema = pa.schema([("topic", pa.string()), ("value", kind)])
    if refused:
        with pytest.raises(BadRows, match="value"):
            check_columns(schema)
    else:
        check_columns(schema)

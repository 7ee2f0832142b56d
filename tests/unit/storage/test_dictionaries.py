"""Batches without dictionaries say the same, also where a name is long or the same throughout."""

import pyarrow as pa
import pytest

from penstock.limits import PLAIN_COLUMN_BYTES_MAX
from penstock.storage.dictionaries import DictionaryDecoder, plain_schema


def batch(words: list[str | None], **more: list[int]) -> pa.RecordBatch:
    column = pa.array(words, pa.utf8()).dictionary_encode()
    indices = column.indices.cast(pa.uint16())
    names = pa.DictionaryArray.from_arrays(indices, column.dictionary)
    return pa.RecordBatch.from_pydict({"topic": names, **more})


@pytest.mark.parametrize(
    "runs",
    [
        [["a", "b", "a"], ["b", "b"], ["b", "b", "b"], ["b"], ["c"], ["b"]],
        [[None, None], ["a", None], ["a", "a"], [None, "a"]],
        [["", ""], [""], ["a"]],
        [["a"] * 7, ["a"] * 3, ["a"] * 9],
    ],
)
def test_each_row_keeps_its_word(runs: list[list[str | None]]) -> None:
    plain = DictionaryDecoder()
    for words in runs:
        given = batch(words, number=list(range(len(words))))
        (found,) = plain.parts(given)
        assert found.schema == plain_schema(given.schema)
        assert found.column("topic").to_pylist() == words
        assert found.column("number").to_pylist() == list(range(len(words)))
        found.validate(full=True)


def test_a_column_that_repeats_is_decoded_once() -> None:
    plain = DictionaryDecoder()
    places = []
    for words in (["a"] * 3, ["a"] * 3, ["a"] * 2, ["b"] * 2, ["b"]):
        (found,) = plain.parts(batch(words))  # type: ignore[arg-type]
        places.append(found.column("topic").buffers()[2].address)
    assert places[0] == places[1] == places[2] != places[3] == places[4]


def test_a_slice_keeps_its_words() -> None:
    given = batch(["a", "a", "b", "b", "b"])
    plain = DictionaryDecoder()
    for first, count in ((2, 3), (0, 2), (1, 2)):
        (found,) = plain.parts(given.slice(first, count))
        assert found.column(0).to_pylist() == ["a", "a", "b", "b", "b"][first : first + count]


def test_names_that_no_column_holds_come_in_parts() -> None:
    name, rows = "x" * 65_535, 33_000  # a little more than 2 GiB
    indices = pa.array([0] * rows, pa.uint16())
    names = pa.DictionaryArray.from_arrays(indices, pa.array([name]))
    given = pa.RecordBatch.from_pydict({"topic": names, "number": list(range(rows))})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        names.dictionary_decode()
    seen = 0
    for part in DictionaryDecoder().parts(given):
        assert part.column("topic").nbytes <= PLAIN_COLUMN_BYTES_MAX + 8 * len(part)
        assert part.column("number")[0].as_py() == seen
        assert part.column("topic")[len(part) - 1].as_py() == name
        seen += len(part)
    assert seen == rows


def test_nothing_is_nothing() -> None:
    assert list(DictionaryDecoder().parts(batch([]))) == []

"""Records of a sink's writer in the state topic: which one is its state."""

import msgspec

from penstock.ports.sinks import SinkWriter
from penstock.storage.kafka.sink_records import SinkRecords


def noted(records: SinkRecords, process: str, turn: int, place: int | None) -> bool | None:
    state = SinkWriter("owner", turn, turn=turn, node=int(process[-1]), process=process)
    return records.note(f"w/{process}", msgspec.json.encode(state), place)


def found(records: SinkRecords) -> tuple[str, int] | None:
    state = records.find("w")
    return None if state is None else (state.process, state.turn)


def test_the_highest_turn_is_the_state_whichever_record_is_last() -> None:
    records = SinkRecords()
    assert found(records) is None
    assert noted(records, "p0", 1, 10)
    assert noted(records, "p1", 3, 11)
    assert noted(records, "p2", 2, 12), "of a process that was suspended"
    assert found(records) == ("p1", 3)
    assert records.processes("w") == [("p0", 0), ("p2", 2), ("p1", 1)]
    assert set(records.all()) == {"w"}


def test_the_first_of_two_records_of_the_same_turn_counts_in_whatever_order_they_are_read() -> None:
    for order in ((10, 11), (11, 10)):
        records = SinkRecords()
        for place in order:
            noted(records, f"p{place - 10}", 5, place)
        assert found(records) == ("p0", 5)


def test_a_record_that_is_read_late_does_not_replace_a_later_one_of_its_process() -> None:
    records = SinkRecords()
    noted(records, "p0", 1, 10)
    noted(records, "p0", 2, None)  # written in a transaction: the place comes later
    assert noted(records, "p0", 1, 10) is None
    assert found(records) == ("p0", 2)
    noted(records, "p0", 2, 20)
    noted(records, "p1", 2, 15)
    assert found(records) == ("p1", 2)


def test_a_removed_record_does_not_count() -> None:
    records = SinkRecords()
    noted(records, "p0", 1, 10)
    noted(records, "p1", 2, 11)
    assert records.note("w/p1", None, 12) is False
    assert found(records) == ("p0", 1)
    assert records.note("w/p0", None, 13) is False
    assert records.all() == {}
    assert records.note("w/p0", None, 14) is False


def test_a_record_that_cannot_be_read_is_ignored() -> None:
    records = SinkRecords()
    noted(records, "p0", 1, 10)
    assert records.note("w/p0", b"{", 11) is None
    assert found(records) == ("p0", 1)

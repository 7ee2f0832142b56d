"""Files of staged rows: synced before they count, limited, and checked when they are read."""

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.access import Principal
from penstock.errors import NotAllowed
from penstock.flight.errors import BadRequest, StagedRowsDamaged, StagingFull
from penstock.flight.protocol import AbortEpoch, PublishEpoch
from penstock.limits import BLOCK_BYTES_MAX
from penstock.server.flight import sink_files
from penstock.server.flight import sinks as sinks_module
from penstock.server.flight.rows import RowCheck
from penstock.server.flight.sink_files import SinkFiles, Task, WriterState
from penstock.server.flight.sinks import Sinks
from penstock.storage.schema import ROWS_SCHEMA
from tests.crash.faults import FaultyFiles
from tests.support.flight import rows

TASK = Task(0, 0)


def staged_rows(count: int = 3) -> pa.RecordBatch:
    return RowCheck(lambda _: None).rows(rows([b"%d" % each for each in range(count)]))


def new_files(tmp_path: Path) -> tuple[SinkFiles, FaultyFiles]:
    disk = FaultyFiles()
    files = SinkFiles(tmp_path, files=disk)
    files.save(WriterState("w", "owner"))
    return files, disk


def test_staged_rows_are_synced_before_they_become_the_rows_of_a_task(tmp_path: Path) -> None:
    files, disk = new_files(tmp_path)
    disk.operations.clear()
    path, count = files.write("w", [staged_rows()])
    assert count == 3
    written = [operation for operation, name in disk.operations if name == path.name]
    assert written[-1] == "sync", written
    assert written.index("sync") > written.index("write")
    files.keep("w", TASK, path)
    assert disk.operations[-1][0] == "sync folder", disk.operations[-1]


def test_no_file_stays_open(tmp_path: Path) -> None:
    files, disk = new_files(tmp_path)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    path, _ = files.write("w", [staged_rows()])
    files.keep("w", TASK, path)
    assert [len(each) for each in files.read("w", TASK)] == [3]
    disk.fail("sync", ".new")
    for _ in range(3):
        with pytest.raises(OSError, match="rror"):
            files.write("w", [staged_rows()])
    assert len(list(descriptors.iterdir())) == before


def test_rows_whose_sync_fails_are_not_staged(tmp_path: Path) -> None:
    files, disk = new_files(tmp_path)
    disk.fail("sync", ".new")
    with pytest.raises(OSError, match="rror"):
        files.write("w", [staged_rows()])
    assert files.tasks("w") == []
    assert [path.name for path in (tmp_path / "sinks" / "w").iterdir()] == ["writer.json"]


def test_a_writer_stages_no_more_than_its_limit_over_all_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = new_files(tmp_path)
    path, _ = files.write("w", [staged_rows(100)])
    files.keep("w", TASK, path)
    taken = sum(each.stat().st_size for each in (tmp_path / "sinks" / "w").iterdir())
    batch = staged_rows(100)
    monkeypatch.setattr(sink_files, "SINK_STAGED_BYTES_MAX", taken + batch.nbytes - 1)
    with pytest.raises(StagingFull, match="limit of"):
        files.write("w", [batch])
    assert files.tasks("w") == [TASK]
    monkeypatch.setattr(sink_files, "SINK_STAGED_BYTES_MAX", taken + batch.nbytes)
    files.write("w", [batch])


@pytest.mark.parametrize("place", [20, -20, -5, -1])
def test_a_flipped_bit_of_staged_rows_is_found_before_a_row_is_published(
    tmp_path: Path, place: int
) -> None:
    files, _ = new_files(tmp_path)
    path, _ = files.write("w", [staged_rows()])
    files.keep("w", TASK, path)
    assert [len(each) for each in files.read("w", TASK)] == [3]
    (path,) = tmp_path.rglob("0-0.arrows")
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(StagedRowsDamaged, match=r"checksum|does not end"):
        next(files.read("w", TASK))


def test_rows_that_an_earlier_version_staged_are_read(tmp_path: Path) -> None:
    files, _ = new_files(tmp_path)
    path = tmp_path / "sinks" / "w" / "0-0.arrows"
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, ROWS_SCHEMA) as stream:
        stream.write_batch(staged_rows())
    assert [len(each) for each in files.read("w", TASK)] == [3]


def test_small_batches_are_staged_together_up_to_the_size_of_a_block(tmp_path: Path) -> None:
    files, _ = new_files(tmp_path)
    check = RowCheck(lambda _: None)
    small = [check.rows(rows([bytes(BLOCK_BYTES_MAX // 2)])) for _ in range(4)]
    path, count = files.write("w", small)
    files.keep("w", TASK, path)
    assert count == 4
    assert [len(each) for each in files.read("w", TASK)] == [2, 2]


def test_the_folder_of_all_writers_is_read_once(tmp_path: Path) -> None:
    files, disk = new_files(tmp_path)
    assert files.writer_count == 1
    listed = disk.names
    calls = []
    disk.names = lambda folder: calls.append(folder) or listed(folder)  # type: ignore[method-assign,func-returns-value]
    files.save(WriterState("x", "owner"))
    assert files.writers() == {"w", "x"}
    files.forget("w")
    assert files.writers() == {"x"}
    assert files.writer_count == 1
    assert calls == [tmp_path / "sinks" / "w"], "only the folder that is removed"
    assert SinkFiles(tmp_path).writers() == {"x"}


def new_sinks(tmp_path: Path) -> Sinks:
    nothing: Any = None
    return Sinks(SinkFiles(tmp_path), nothing, nothing)


def test_one_principal_cannot_have_all_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "SINK_WRITERS_PER_PRINCIPAL_MAX", 3)
    monkeypatch.setattr(sinks_module, "SINK_WRITERS_MAX", 5)
    one, two = Principal("one"), Principal("two")
    sinks = new_sinks(tmp_path)
    for name in "abc":
        sinks._state(name, one)
    with pytest.raises(StagingFull, match="limit of 3 writers of one principal"):
        sinks._state("d", one)
    assert sinks._state("a", one).owner == "one", "those that it has are served"
    with pytest.raises(NotAllowed):
        sinks._state("a", two)
    sinks._state("d", two)
    again = new_sinks(tmp_path)
    with pytest.raises(StagingFull, match="limit of 3 writers of one principal"):
        again._state("e", one)
    again._state("e", two)
    with pytest.raises(StagingFull, match="limit of 5 writers is"):
        again._state("f", two)


@pytest.mark.parametrize("writer", ["..", "a/b", "../sinks/w"])
def test_no_request_reaches_a_folder_that_is_not_of_a_writer(tmp_path: Path, writer: str) -> None:
    sinks = new_sinks(tmp_path)
    for call in (
        lambda: sinks.abort(AbortEpoch(writer, 0), Principal("one")),
        lambda: sinks.publish(PublishEpoch(writer, 0, []), Principal("one")),
    ):
        with pytest.raises(BadRequest, match="letters, digits"):
            call()


def test_tokens_are_those_of_the_partitions(tmp_path: Path) -> None:
    request = PublishEpoch("w", 0, [0, 1], tokens=["a"])
    with pytest.raises(BadRequest, match="one for each partition"):
        new_sinks(tmp_path).publish(request, Principal("one"))


def test_a_finished_writer_gives_its_place_to_another_of_its_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "SINK_WRITERS_PER_PRINCIPAL_MAX", 2)
    monkeypatch.setattr(sinks_module, "SINK_FINAL_SECONDS_MAX", -1.0)
    files = SinkFiles(tmp_path)
    files.save(WriterState("finished", "one", 0, final=True))
    files.save(WriterState("active", "one", 0))
    sinks = new_sinks(tmp_path)
    sinks._state("new", Principal("one"))
    with pytest.raises(StagingFull):
        sinks._state("more", Principal("one"))
    assert SinkFiles(tmp_path).writers() == {"active", "new"}


def test_a_writer_whose_state_is_damaged_counts_for_no_principal(tmp_path: Path) -> None:
    files, _ = new_files(tmp_path)
    files.save(WriterState("damaged", "owner"))
    (tmp_path / "sinks" / "damaged" / "writer.json").write_text("{")
    found = SinkFiles(tmp_path)
    assert (found.writer_count, found.writer_count_of("owner")) == (2, 1)
    found.save(WriterState("damaged", "owner"))
    assert found.writer_count_of("owner") == 2
    found.forget("w")
    assert found.writer_count_of("owner") == 1


def test_a_file_that_is_removed_meanwhile_has_no_size(tmp_path: Path) -> None:
    files, _ = new_files(tmp_path)
    path, _ = files.write("w", [staged_rows()])
    size = path.stat().st_size
    assert files._size(path) == size
    files.drop(path)
    assert files._size(path) == 0


def test_calls_for_one_writer_wait_for_each_other_and_leave_no_lock(tmp_path: Path) -> None:
    sinks = new_sinks(tmp_path)
    inside: list[str] = []
    first = threading.Event()

    def call(name: str) -> None:
        with sinks._locked("w"):
            inside.append(name)
            first.set()
            inside.append(name)

    threads = [threading.Thread(target=call, args=(name,)) for name in "abc"]
    with sinks._locked("w"):
        for thread in threads:
            thread.start()
        while sinks._locks["w"][1] < 4:
            time.sleep(0.001)
        assert not first.is_set()
        with sinks._locked("another"):
            assert len(sinks._locks) == 2
    for thread in threads:
        thread.join(10)
    assert inside[::2] == inside[1::2]
    assert sinks._locks == {}

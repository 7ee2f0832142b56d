"""Closed segments are copied to an object store, and read from it when the local ones are gone."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import LogDamaged, OffsetBelowHorizon, TierUnavailable
from penstock.ports import PartitionRange, TierStatus
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.damage import Damage
from penstock.storage.arrow.format.file_names import index_path, partition_folder
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.arrow.read.pieces import cut, plan, read_pieces
from penstock.storage.arrow.read.records import record_batches
from penstock.storage.arrow.read.segment_cache import save_cache_limit
from penstock.storage.arrow.recover.overlay import Overlay
from penstock.storage.arrow.recover.verify import Verified, verify
from penstock.storage.arrow.write.removal_record import RemovalRecord
from penstock.storage.arrow.write.tiering import Tiering
from penstock.storage.files import Files
from penstock.storage.object_store import ObjectStore
from penstock.storage.options import LogOptions, Retention, TierOptions, TopicRetention
from tests.support.object_store import bucket, s3_endpoint
from tests.support.written_log import WrittenLog

__all__ = ["bucket", "s3_endpoint"]

SECONDS_MAX = 20.0
ALL_LOCAL_MAX = Retention(bytes_max=1)
"""Only the last closed segment stays on the local disk."""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def tier_of(log: ArrowLog) -> TierStatus:
    status = log.status().tier
    assert status is not None
    return status


def fill(data: Path, url: str, *, count: int = 6, **options: object) -> WrittenLog:
    """A log of `count` segments with three messages each, of which one is active."""
    tier = TierOptions(url, local=ALL_LOCAL_MAX)
    log = WrittenLog(data, segment_bytes_max=1, **{"tier": tier, **options})
    log.put_many(count)
    return log


def wait_until_tiered(log: WrittenLog, count: int) -> None:
    wait_for(
        lambda: (
            tier_of(log.log).segments >= count
            and len(log.segments()) <= 2
            and tier_of(log.log).local_segments == 1
        )
    )


def offsets_of(log: ArrowLog) -> list[int]:
    bounds = log.bounds()[0]
    span = PartitionRange(0, bounds.horizon, bounds.end)
    return [n for batch in log.scan(span, Selection()) for n in batch.column("offset").to_pylist()]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.arrow.write.tiering.TIER_SECONDS", 0.02)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store on a disk; the tests with a server are fewer, because it is slower."""
    return f"file://{tmp_path}/store"


@pytest.fixture
def tiered(tmp_path: Path, url: str) -> Iterator[WrittenLog]:
    log = fill(tmp_path / "data", url)
    try:
        wait_until_tiered(log, 5)
        yield log
    finally:
        log.close()


def test_segments_are_in_the_store_and_all_messages_can_be_read(tiered: WrittenLog) -> None:
    assert [path.name[:20] for path in tiered.segments()] == [f"{n:020}" for n in (12, 15)]
    assert tiered.log.horizon == 0
    assert offsets_of(tiered.log) == list(range(18))
    status = tier_of(tiered.log)
    assert (status.segments, status.waiting_segments, status.overdue_segments) == (5, 0, 0)
    assert (status.uploads, status.failures, status.problem) == (5, 0, None)
    assert status.local_segments == 1
    assert status.last_upload_us is not None


def test_a_real_store_serves_all_readers(tmp_path: Path, bucket: str) -> None:
    data = tmp_path / "data"
    log = fill(data, f"{bucket}/logs")
    try:
        wait_until_tiered(log, 5)
        assert offsets_of(log.log) == list(range(18))
        names = [each.name for each in ObjectStore(f"{bucket}/logs").objects()]
        prefix = f"{log.log.log_id:012x}/0"
        assert names == sorted(
            f"{prefix}/{base:020}{suffix}"
            for base in range(0, 15, 3)
            for suffix in (".arrows", ".index")
        )
        follower = LogFollower(data)
        assert follower.bounds() == (0, 18)
        spans = plan(follower.catalog, 0, 18, Selection())
        pieces = [piece for task in cut(spans, 3) for piece in task]
        found = read_pieces(follower.folder, pieces, first=0, last=18, columns=["offset"])
        assert [n for batch in found for n in batch.column("offset").to_pylist()] == list(range(18))
    finally:
        log.close()
    view = LogView(data)
    assert (view.horizon, view.end, view.damage) == (0, 18, [])
    values = [v for batch in record_batches(view) for v in batch.column("value").to_pylist()]
    assert values == [b"%d" % n for n in range(18)]
    *damage, totals = verify(Overlay(), view.folder)
    assert damage == []
    assert isinstance(totals, Verified)
    assert (totals.segments, totals.messages) == (6, 18)


def test_a_log_is_opened_again_without_its_store(
    tiered: WrittenLog, tmp_path: Path, url: str
) -> None:
    tiered.close()
    (tmp_path / "store").rename(tmp_path / "away")
    log = fill(tmp_path / "data", url, count=1)
    try:
        assert log.log.recovered.damage == []
        assert (log.log.horizon, log.log.end) == (0, 21)
        assert [each.base_offset for each in log.log.status().segments] == list(range(0, 21, 3))
    finally:
        log.close()


def test_a_time_is_found_in_the_store(tiered: WrittenLog) -> None:
    from tests.support.written_log import START_US  # noqa: PLC0415

    assert tiered.log.offset_at(0, START_US + 4000) == 4


def test_topics_and_numbers_of_messages_need_no_object(tiered: WrittenLog, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "away")
    assert tiered.log.stored_topics() == {"a", "b"}
    assert tiered.log.match(PartitionRange(0, 0, 18), Selection()).rows == 18


def test_an_object_that_was_changed_is_damage(tiered: WrittenLog, tmp_path: Path) -> None:
    (segment,) = (tmp_path / "store").rglob("*00000000003.arrows")
    data = bytearray(segment.read_bytes())
    data[-20] ^= 1
    segment.write_bytes(data)
    with pytest.raises(LogDamaged, match="not what was uploaded"):
        offsets_of(tiered.log)
    damage = [each for each in verify(Overlay(), tiered.folder) if isinstance(each, Damage)]
    assert [(each.first_offset, each.resumes_at) for each in damage] == [(3, 6)]


def test_a_lost_index_is_read_from_the_store(tiered: WrittenLog, tmp_path: Path) -> None:
    tiered.close()
    (tiered.folder / f"{3:020}.index").unlink()
    view = LogView(tmp_path / "data")
    assert sum(map(len, record_batches(view))) == 18


def test_retention_removes_objects_too(tmp_path: Path, url: str) -> None:
    data = tmp_path / "data"
    log = fill(data, url)
    wait_until_tiered(log, 5)
    log.close()
    segment = (partition_folder(data, 0) / f"{15:020}.arrows").stat().st_size
    log = fill(data, url, count=1, retention=Retention(bytes_max=3 * segment))
    try:
        wait_for(lambda: log.log.horizon > 0)
        wait_for(lambda: len(list((tmp_path / "store").rglob("*.arrows"))) == 3)
        assert log.log.horizon == 9
        assert not list((tmp_path / "store").rglob(f"{0:020}*"))
        assert not list(log.folder.glob(f"{0:020}*"))
        with pytest.raises(OffsetBelowHorizon):
            list(log.log.scan(PartitionRange(0, 0, 18), Selection()))
        assert offsets_of(log.log) == list(range(9, 21))
    finally:
        log.close()


def test_the_cache_has_a_limit(tmp_path: Path, url: str) -> None:
    tier = TierOptions(url, local=ALL_LOCAL_MAX, cache_bytes_max=1)
    log = fill(tmp_path / "data", url, tier=tier)
    try:
        wait_until_tiered(log, 5)
        assert offsets_of(log.log) == list(range(18))
        assert len(list((tmp_path / "data" / "tier-cache").iterdir())) == 1
    finally:
        log.close()


def test_while_the_store_is_away_nothing_local_is_deleted(tmp_path: Path) -> None:
    blocked = tmp_path / "store"
    blocked.write_text("a file in place of the folder")
    log = fill(tmp_path / "data", f"file://{blocked}")
    try:
        wait_for(lambda: tier_of(log.log).failures > 0 and tier_of(log.log).overdue_segments == 4)
        status = tier_of(log.log)
        assert len(log.segments()) == 6
        assert (status.segments, status.waiting_segments) == (0, 5)
        assert status.problem
        assert offsets_of(log.log) == list(range(18))
        blocked.unlink()
        wait_until_tiered(log, 5)
        wait_for(lambda: tier_of(log.log).problem is None)
        assert tier_of(log.log).overdue_segments == 0
        assert offsets_of(log.log) == list(range(18))
    finally:
        log.close()


def test_reads_fail_while_the_store_is_away_and_go_on_when_it_is_back(
    tiered: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.arrow.read.segment_cache.TIER_RETRY_SECONDS", 0.0)
    store = tmp_path / "store"
    store.rename(tmp_path / "away")
    store.write_text("a file in place of the folder")
    with pytest.raises(TierUnavailable) as caught:
        offsets_of(tiered.log)
    assert caught.value.offset == 0
    assert str(store) not in str(caught.value)
    local = PartitionRange(0, 12, 18)
    assert sum(map(len, tiered.log.scan(local, Selection()))) == 6
    store.unlink()
    (tmp_path / "away").rename(store)
    assert offsets_of(tiered.log) == list(range(18))


def test_a_segment_that_is_not_in_the_store_any_more_is_uploaded_again(
    tmp_path: Path, url: str
) -> None:
    log = fill(tmp_path / "data", url, tier=TierOptions(url))
    wait_for(lambda: tier_of(log.log).segments == 5)
    log.close()
    for path in (tmp_path / "store").rglob(f"{3:020}.*"):
        path.unlink()
    log = fill(tmp_path / "data", url, count=1)
    try:
        wait_until_tiered(log, 6)
        assert offsets_of(log.log) == list(range(21))
    finally:
        log.close()


def test_a_damaged_marker_deletes_nothing(tiered: WrittenLog, tmp_path: Path, url: str) -> None:
    tiered.close()
    marker = tiered.folder / f"{0:020}.tiered.json"
    marker.write_bytes(marker.read_bytes().replace(b'"size":', b'"sise":', 1))
    log = fill(tmp_path / "data", url, count=1)
    try:
        wait_until_tiered(log, 4)
        assert any(each.resumes_at == 3 for each in log.log.recovered.damage)
        assert list((tmp_path / "store").rglob(f"{0:020}.arrows"))
    finally:
        log.close()


def test_a_log_without_the_setting_reads_what_is_in_the_store(
    tiered: WrittenLog, tmp_path: Path
) -> None:
    tiered.close()
    log = ArrowLog(tmp_path / "data", LogOptions())
    try:
        assert offsets_of(log) == list(range(18))
    finally:
        log.close()


def test_a_segment_is_uploaded_when_its_row_groups_were_merged(tmp_path: Path, bucket: str) -> None:
    with WrittenLog(tmp_path, segment_bytes_max=1) as log:
        log.put_many(3)
        ready: set[int] = set()
        tiering = Tiering(
            Files(),
            log.folder,
            log.log._catalog,
            TierOptions(bucket),
            log_id=log.log.log_id,
            partition=0,
            horizon=lambda: 0,
            is_ready=ready.__contains__,
        )
        tiering.step()
        assert tiering.status().segments == 0
        ready.add(0)
        with log.log._catalog.claimed(0):
            tiering.step()
        assert tiering.status().segments == 0
        tiering.step()
        assert tiering.status().segments == 1


def test_a_segment_is_not_fetched_to_be_removed(
    tiered: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.arrow.read.segment_cache.TIER_RETRY_SECONDS", 0.0)
    store = tmp_path / "store"
    store.rename(tmp_path / "away")
    store.write_text("a file in place of the folder")
    removed = RemovalRecord(tiered.log._files, tiered.folder, horizon=0).save([0, 3], 6)
    assert (removed.known_from, removed.ends) == (0, {"a": 6, "b": 6})
    index_path(tiered.folder, 0).unlink()
    removed = RemovalRecord(tiered.log._files, tiered.folder, horizon=0).save([0, 3], 6)
    assert (removed.known_from, removed.ends) == (6, {})


def test_retention_goes_on_while_a_lost_index_cannot_be_fetched(
    tiered: WrittenLog, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.arrow.read.segment_cache.TIER_RETRY_SECONDS", 0.0)
    tiered.close()
    index_path(tiered.folder, 0).unlink()
    store = tmp_path / "store"
    store.rename(tmp_path / "away")
    store.write_text("a file in place of the folder")
    last = TopicRetention(("a",), last_only=True)
    kept = Retention(age_seconds_max=1e9, bytes_max=1 << 30, rules=(last,))
    log = fill(tmp_path / "data", url, count=1, retention=kept)
    checks: list[int] = []
    monkeypatch.setattr(log.log._retention, "check", checks.append)

    def found() -> bool:
        log.log._committer.later(log.log._retain)
        return log.log.status().retention_rules[0].horizon == 21

    try:
        log.log._committer.later(log.log._retain)
        wait_for(lambda: len(checks) > 0)
        wait_for(lambda: log.log._topic_expiry._search_at > 0.0)
        assert not found()
        store.unlink()
        (tmp_path / "away").rename(store)
        wait_for(found)
    finally:
        log.close()


def test_the_limit_of_the_cache_is_written_when_it_changes(tmp_path: Path) -> None:
    save_cache_limit(Files(), tmp_path, 1000)
    (path,) = tmp_path.iterdir()
    first = path.stat().st_ino, path.read_bytes()
    save_cache_limit(Files(), tmp_path, 1000)
    assert (path.stat().st_ino, path.read_bytes()) == first
    save_cache_limit(Files(), tmp_path, 100)
    assert path.read_bytes() != first[1]

"""A lost data folder is made again from the segments in an object store."""

import shutil
from pathlib import Path

import pytest

from penstock.errors import CannotKeep, CannotReadStore
from penstock.ports import PartitionRange
from penstock.storage.arrow.format.damage import Damage
from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.recover.overlay import Overlay
from penstock.storage.arrow.recover.tier_import import import_tier
from penstock.storage.arrow.recover.verify import verify
from penstock.storage.object_store import ObjectStore
from penstock.storage.options import Retention, TierOptions
from tests.support.commands import Commands
from tests.support.object_store import bucket, s3_endpoint
from tests.support.written_log import WrittenLog
from tests.unit.storage.test_tiering import fill, offsets_of, wait_until_tiered

__all__ = ["bucket", "s3_endpoint"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.arrow.write.tiering.TIER_SECONDS", 0.02)


def lose(data: Path, url: str, *, count: int = 6, **options: object) -> int:
    """Write a log whose closed segments are in a store, and delete its folder; return its id."""
    log = fill(data, url, count=count, **options)
    try:
        wait_until_tiered(log, count - 1)
        return log.log.log_id
    finally:
        log.close()
        shutil.rmtree(data)


def test_a_log_is_restored_from_a_bucket_and_goes_on(
    tmp_path: Path, bucket: str, commands: Commands
) -> None:
    url = f"{bucket}/logs"
    log_id = lose(tmp_path / "lost", url)
    data = tmp_path / "restored"
    done = commands.run("log", "import", "--from", url, "--data", data)
    assert (done.code, done.out) == (0, f"{data}: 15 messages in partition 0, offsets 0 to 15.\n")
    faults = verify(Overlay(), partition_folder(data, 0))
    assert not [each for each in faults if isinstance(each, Damage)]
    assert commands.run("log", "verify", "--data", data).code == 0
    tier = TierOptions(url, local=Retention(bytes_max=1))
    with WrittenLog(data, segment_bytes_max=1, tier=tier) as log:
        assert (log.log.log_id, log.log.horizon) == (log_id, 0)
        assert not log.log.damage(PartitionRange(0, 0, 15))
        log.put_many(2)
        wait_until_tiered(log, 6)
        assert offsets_of(log.log) == list(range(21))


def test_a_log_that_retention_has_cut_begins_where_it_began(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    log_id = lose(tmp_path / "lost", url)
    store = ObjectStore(f"{url}/{log_id:012x}/0")
    for base in (0, 3):
        for suffix in (".arrows", ".index"):
            assert store.delete(f"{base:020}{suffix}")
    found = import_tier(url, tmp_path / "data", partition=0, progress=lambda _: None)
    assert found == (9, 3, 6, 15)
    with WrittenLog(tmp_path / "data") as log:
        assert not log.log.damage(PartitionRange(0, 0, 15))
        assert offsets_of(log.log) == list(range(6, 15))


def test_of_several_logs_one_is_named(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    ids = sorted(f"{lose(tmp_path / name, url, count=2):012x}" for name in ("one", "two"))
    data = tmp_path / "data"
    with pytest.raises(CannotReadStore, match=f"several logs: add one of {ids[0]}, {ids[1]} to"):
        import_tier(url, data, partition=0, progress=lambda _: None)
    import_tier(f"{url}/{ids[1]}", data, partition=0, progress=lambda _: None)
    with WrittenLog(data) as log:
        assert f"{log.log.log_id:012x}" == ids[1]
    with pytest.raises(CannotKeep, match="it has log/0 already"):
        import_tier(f"{url}/{ids[1]}", data, partition=0, progress=lambda _: None)


def test_a_store_without_the_partition_makes_no_folder(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    lose(tmp_path / "lost", url, count=2)
    for place, partition in ((url, 1), (f"file://{tmp_path}/nothing", 0)):
        with pytest.raises(CannotReadStore, match=f"no segment of partition {partition}"):
            import_tier(place, tmp_path / "data", partition=partition, progress=lambda _: None)
    with pytest.raises(CannotReadStore, match="cannot read the log ftp://"):
        import_tier("ftp://somewhere", tmp_path / "data", partition=0, progress=lambda _: None)
    assert not (tmp_path / "data").exists()


def test_a_copy_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    lose(tmp_path / "lost", url)
    data = tmp_path / "data"
    sizes: list[int] = []

    def killed(size: int) -> None:
        sizes.append(size)
        if len(sizes) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_tier(url, data, partition=0, progress=killed)
    assert not partition_folder(data, 0).exists()
    assert import_tier(url, data, partition=0, progress=lambda _: None).messages == 15
    assert [each.name for each in (data / "log").iterdir()] == ["0"]

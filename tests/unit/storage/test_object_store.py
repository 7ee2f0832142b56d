"""Objects of a bucket and files of a folder behave alike."""

import pickle
from pathlib import Path

import pytest

from penstock.storage.object_store import ObjectStore
from tests.support.object_store import bucket, s3_endpoint

__all__ = ["bucket", "s3_endpoint"]


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return ObjectStore.at(tmp_path / "a folder #1")
    return ObjectStore(f"{request.getfixturevalue('bucket')}/prefix")


def names(store: ObjectStore, below: str = "") -> list[str]:
    return [each.name for each in store.objects(below)]


def test_objects_are_written_listed_moved_and_deleted(store: ObjectStore) -> None:
    assert names(store) == []
    for name in ("a", "below/b", "below/c", "_hidden/d"):
        store.write(name, name.encode())
    assert names(store) == ["_hidden/d", "a", "below/b", "below/c"]
    assert [each.name for each in store.objects(hidden=False)] == ["a", "below/b", "below/c"]
    assert [each.name for each in store.objects(recursive=False)] == ["a"]
    assert store.folders() == ["_hidden", "below"]
    assert (store.size("a"), store.size("missing")) == (1, None)
    store.move("below/b", store.below("other"), "b")
    assert store.read("other/b") == b"below/b"
    assert (store.delete("a"), store.delete("a")) == (True, False)
    store.delete_all("below")
    store.delete_all("below")
    assert names(store) == ["_hidden/d", "other/b"]
    assert "below" not in store.folders()


def test_a_missing_object_is_a_missing_file(store: ObjectStore, tmp_path: Path) -> None:
    for call in (store.read, store.stat, lambda name: store.download(name, tmp_path / "copy")):
        with pytest.raises(FileNotFoundError):
            call("missing")


def test_copies_are_the_same_bytes_and_have_the_same_hash(
    store: ObjectStore, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 10_000
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    sent = store.upload(source, "below/object")
    received = pickle.loads(pickle.dumps(store)).download("below/object", target)  # noqa: S301
    assert sent == received
    assert sent.size == len(data)
    assert target.read_bytes() == data


def test_an_upload_can_be_stopped(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x")
    with pytest.raises(InterruptedError):
        store.upload(tmp_path / "source", "object", lambda: False)

"""The journal of topics: names come back with their creators, whatever happened to its end."""

import errno
from pathlib import Path

import google_crc32c
import pytest

from penstock.storage.arrow.format.file_names import JOURNAL
from penstock.storage.arrow.write.topic_journal import TopicJournal, read_topics
from penstock.storage.files import Files
from tests.crash.faults import FaultyFiles
from tests.support.recorded_files import FailingFiles, RecordedFiles
from tests.unit.storage.sample import FOLDER

CREATOR = bytes(range(16))
NAMES = [("sensors/kitchen", CREATOR), ("a\nb", b""), ("größe/%FF ", b""), ('"quoted"', CREATOR)]


def line(name: str, creator: str) -> bytes:
    rest = f"{creator} {name}".encode()
    return b"%08x %b\n" % (google_crc32c.value(rest), rest)


WRITTEN = b"".join(
    [
        line('"sensors/kitchen"', CREATOR.hex()),
        line('"a\\nb"', "-"),
        line('"größe/%FF "', "-"),
        line('"\\"quoted\\""', CREATOR.hex()),
    ]
)


def journal(files: Files, folder: Path) -> TopicJournal:
    made = TopicJournal(files, folder)
    made.load()
    return made


def test_names_and_creators_come_back() -> None:
    files = RecordedFiles()
    made = journal(files, FOLDER)
    for name, creator in NAMES:
        made.add(name, creator)
    assert made.waiting
    assert FOLDER / JOURNAL not in files.state
    made.write(sync=True)
    assert not made.waiting
    assert files.state[FOLDER / JOURNAL] == WRITTEN
    assert read_topics(files, FOLDER).names == NAMES
    assert journal(files, FOLDER).load().names == NAMES


def test_a_cut_at_any_byte_loses_only_the_lines_that_are_not_whole() -> None:
    for size in range(len(WRITTEN) + 1):
        files = RecordedFiles({FOLDER / JOURNAL: WRITTEN[:size]})
        made = TopicJournal(files, FOLDER)
        found = made.load()
        whole = WRITTEN[:size].count(b"\n")
        assert found.names == NAMES[:whole]
        assert found.bad_lines == 0
        made.add("next", b"")
        made.write(sync=True)
        assert read_topics(files, FOLDER).names == [*NAMES[:whole], ("next", b"")]


def test_a_line_that_is_damaged_is_counted_and_the_others_are_read() -> None:
    for position in range(WRITTEN.rindex(b"\n", 0, -1)):
        changed = bytearray(WRITTEN)
        changed[position] ^= 4
        files = RecordedFiles({FOLDER / JOURNAL: bytes(changed)})
        found = TopicJournal(files, FOLDER).load()
        assert found.bad_lines > 0, position
        assert set(found.names) < set(NAMES)
        assert files.state[FOLDER / JOURNAL] == bytes(changed), "it is left as it is"


def test_a_name_that_was_added_twice_keeps_its_first_creator() -> None:
    files = RecordedFiles()
    made = journal(files, FOLDER)
    made.add("a", CREATOR)
    made.add("a", b"")
    made.write(sync=False)
    assert read_topics(files, FOLDER).names == [("a", CREATOR)]


@pytest.mark.parametrize(
    "failing",
    [
        FailingFiles(write=1, short=5),
        FailingFiles(write=1, failure=errno.EIO),
        FailingFiles(sync=1, failure=errno.EIO),
    ],
)
def test_what_could_not_be_written_is_written_anew(failing: FailingFiles, tmp_path: Path) -> None:
    made = journal(failing, tmp_path)
    made.add("first", b"")
    made.write(sync=True)
    made.add("second", CREATOR)
    with pytest.raises(OSError, match=r"No space|Input/output"):
        made.write(sync=True)
    made.add("third", b"")
    with pytest.raises(OSError, match=r"No space|Input/output"):
        made.write(sync=True)
    failing.mend()
    made.write(sync=True)
    made.add("fourth", b"")
    made.write(sync=True)
    made.close()
    found = read_topics(Files(), tmp_path)
    assert [name for name, _ in found.names] == ["first", "second", "third", "fourth"]
    assert (found.bad_lines, found.torn) == (0, 0)


def test_a_journal_that_was_not_synced_is_synced_when_it_is_loaded(tmp_path: Path) -> None:
    made = journal(Files(), tmp_path)
    made.add("first", b"")
    made.write(sync=False)
    made.close()
    files = FaultyFiles()
    journal(files, tmp_path).close()
    assert ("sync", JOURNAL) in files.operations
    assert files.operations[-1][0] == "sync folder"


# --- Owners and deletion --------------------------------------------------------------------------


def test_owners_come_back() -> None:
    files = RecordedFiles()
    made = journal(files, FOLDER)
    owners = {"a": "panel", 'b" "c': 'it"s', " ": "x,y", ",": '","'}
    for name, owner in owners.items():
        made.add(name, CREATOR, owner)
    made.add("plain")
    made.write(sync=True)
    assert files.state[FOLDER / JOURNAL].startswith(line('"a","panel"', CREATOR.hex()))
    found = read_topics(files, FOLDER)
    assert found.owners == owners
    assert found.names == [*((name, CREATOR) for name in owners), ("plain", b"")]


def test_a_deleted_topic_stays_deleted_until_it_is_added_again() -> None:
    files = RecordedFiles()
    made = journal(files, FOLDER)
    for name in "abc":
        made.add(name, CREATOR, "alice")
    made.remove("b")
    made.remove("c")
    made.add("c", b"", "bob")
    assert made.waiting
    made.write(sync=True)
    found = journal(files, FOLDER).load()
    assert line('"b"', "x") in files.state[FOLDER / JOURNAL]
    assert found.names == [("a", CREATOR), ("c", b"")]
    assert found.owners == {"a": "alice", "c": "bob"}
    assert found.deleted == ["b"]
    assert (found.bad_lines, found.torn) == (0, 0)


def test_a_journal_of_topics_that_come_and_go_is_written_anew() -> None:
    files = RecordedFiles()
    made = journal(files, FOLDER)
    made.add("stays", CREATOR, "alice")
    for _ in range(600):
        made.add("again", b"", "bob")
        made.remove("again")
    made.write(sync=True)
    before = read_topics(files, FOLDER)
    reopened = journal(files, FOLDER)
    assert len(files.state[FOLDER / JOURNAL].splitlines()) == 2
    reopened.add("more")
    reopened.write(sync=True)
    after = read_topics(files, FOLDER)
    assert after.names == [*before.names, ("more", b"")]
    assert (
        (after.owners, after.deleted)
        == (before.owners, before.deleted)
        == ({"stays": "alice"}, ["again"])
    )
    assert after.bad_lines == 0


def test_after_one_new_file_lines_are_appended_again() -> None:
    files = RecordedFiles()
    made = journal(files, FOLDER)
    files.fail("write")
    made.add("first")
    with pytest.raises(OSError, match="No space"):
        made.write(sync=True)
    files.mend()
    made.write(sync=True)
    replaced = len(files.operations)
    made.add("second")
    made.write(sync=True)
    assert [each.kind for each in files.operations[replaced:]] == ["write", "sync"]
    assert [name for name, _ in read_topics(files, FOLDER).names] == ["first", "second"]

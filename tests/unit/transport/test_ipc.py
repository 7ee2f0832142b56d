"""The path rules of fleximq 6.3.1, and what they leave open."""

import asyncio
import fcntl
import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from penstock.errors import CannotListen
from penstock.transport.ipc import claim_path, resolve_path
from tests.unit.transport.conftest import Run


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def stale(path: Path) -> None:
    """A socket file whose owner is gone."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.fixture
def folder() -> Path:
    """Short, for a socket's path may have 107 bytes only."""
    with tempfile.TemporaryDirectory(prefix="pk", dir="/tmp") as name:
        yield Path(name)  # type: ignore[misc]


def test_a_relative_path_lies_in_the_temporary_directory() -> None:
    assert resolve_path("a/b.sock") == Path(tempfile.gettempdir(), "a", "b.sock")


def test_an_absolute_path_is_taken_as_it_is() -> None:
    assert resolve_path("/var/run/a.sock") == Path("/var/run/a.sock")


def test_a_claimed_path_can_be_connected_to_and_goes_on_release(run: Run, folder: Path) -> None:
    async def check() -> None:
        path = folder / "a.sock"
        claimed = await claim_path(path)
        with claimed.socket, socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(1)
            caller.connect(str(path))
            claimed.release()
            assert not path.exists()
            claimed.release()  # twice is no fault

    run(check())


def test_only_its_user_may_connect_unless_told_otherwise(run: Run, folder: Path) -> None:
    async def check() -> None:
        for name, mode in (("a", 0o600), ("b", 0o660), ("c", 0o666)):
            claimed = await claim_path(folder / name, mode=mode)
            assert mode_of(folder / name) == mode
            claimed.socket.close()
        claimed = await claim_path(folder / "d")
        assert mode_of(folder / "d") == 0o600
        claimed.socket.close()

    old = os.umask(0o077)
    try:
        run(check())
    finally:
        os.umask(old)


def test_no_other_user_may_connect_before_the_mode_is_set(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # the moment before it

    async def check() -> None:
        claimed = await claim_path(folder / "a")
        assert mode_of(folder / "a") == 0o600
        claimed.socket.close()

    old = os.umask(0)
    try:
        run(check())
    finally:
        os.umask(old)


def test_the_last_missing_directory_is_made(run: Run, folder: Path) -> None:
    async def check() -> None:
        claimed = await claim_path(folder / "app" / "a.sock")
        claimed.socket.close()
        assert (folder / "app" / "a.sock").is_socket()

    run(check())


@pytest.mark.parametrize(("mode", "directory"), [(0o600, 0o700), (0o660, 0o755), (0o666, 0o755)])
def test_other_users_enter_the_directory_only_if_they_may_connect(
    run: Run, folder: Path, mode: int, directory: int
) -> None:
    async def check() -> None:
        claimed = await claim_path(folder / "app" / "a.sock", mode=mode)
        claimed.socket.close()
        assert mode_of(folder / "app") == directory

    old = os.umask(0o077)
    try:
        run(check())
    finally:
        os.umask(old)


def test_directories_above_the_last_are_not_made(run: Run, folder: Path) -> None:
    async def check() -> None:
        with pytest.raises(CannotListen, match=r"run does not exist; make .*run first"):
            await claim_path(folder / "run" / "app" / "a.sock")

    run(check())
    assert list(folder.iterdir()) == []


def test_a_stale_socket_is_replaced(run: Run, folder: Path) -> None:
    async def check() -> None:
        stale(folder / "a.sock")
        old = (folder / "a.sock").lstat().st_ino, (folder / "a.sock").lstat().st_ctime_ns
        claimed = await claim_path(folder / "a.sock")
        claimed.socket.close()
        new = (folder / "a.sock").lstat().st_ino, (folder / "a.sock").lstat().st_ctime_ns
        assert new != old

    run(check())


def test_a_live_socket_is_never_stolen(run: Run, folder: Path) -> None:
    async def check() -> None:
        path = folder / "a.sock"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(0)
            with pytest.raises(CannotListen, match="another process listens there"):
                await claim_path(path)
            # Also not when its queue is full, so that a connection would have to wait.
            callers = [socket.socket(socket.AF_UNIX) for _ in range(4)]
            for caller in callers:
                caller.settimeout(0)
                caller.connect_ex(str(path))
            with pytest.raises(CannotListen, match="another process listens there"):
                await claim_path(path)
            for caller in callers:
                caller.close()
            assert path.is_socket()

    run(check())


def test_of_two_that_start_at_once_one_gets_the_path(run: Run, folder: Path) -> None:
    async def check() -> None:
        for _ in range(20):
            stale(folder / "a.sock")
            claims = [claim_path(folder / "a.sock") for _ in range(2)]
            results = await asyncio.gather(*claims, return_exceptions=True)
            assert sorted(type(result).__name__ for result in results) == [
                "CannotListen",
                "ClaimedPath",
            ]
            for result in results:
                if not isinstance(result, BaseException):
                    result.release()
                    result.socket.close()

    run(check())


def test_a_directory_that_stays_locked_is_given_up_on(run: Run, folder: Path) -> None:
    async def check() -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            with pytest.raises(CannotListen, match="holds a lock on"):
                await claim_path(folder / "a.sock", seconds_max=0.1)
        finally:
            os.close(descriptor)

    run(check())


def test_a_file_that_is_no_socket_is_left_alone(run: Run, folder: Path) -> None:
    async def check() -> None:
        (folder / "a.sock").write_text("precious")
        (folder / "b.sock").symlink_to(folder / "elsewhere")
        for name in ("a.sock", "b.sock"):
            with pytest.raises(CannotListen, match="not a socket"):
                await claim_path(folder / name)
        assert (folder / "a.sock").read_text() == "precious"
        assert (folder / "b.sock").is_symlink()

    run(check())


def test_another_file_at_the_path_survives_a_release(run: Run, folder: Path) -> None:
    async def check() -> None:
        path = folder / "a.sock"
        claimed = await claim_path(path)
        path.rename(folder / "b.sock")
        path.write_text("somebody else's")
        claimed.release()
        claimed.socket.close()
        assert path.read_text() == "somebody else's"

    run(check())


def test_a_path_that_is_too_long_is_refused(run: Run, folder: Path) -> None:
    async def check() -> None:
        with pytest.raises(CannotListen, match="the system takes 107"):
            await claim_path(folder / ("a" * 108))

    run(check())

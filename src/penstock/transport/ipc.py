"""IPC: creating, locking and removing the socket file (fleximq 6.3.1).

A path is claimed under a lock on its directory: if two listeners start at once, one gets the path
and the other an error. The socket file has its permissions from the moment it is created.
"""

import asyncio
import errno
import fcntl
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Final

from penstock.errors import CannotListen
from penstock.limits import IPC_CLAIM_SECONDS_MAX, IPC_PATH_BYTES_MAX

__all__ = ["SOCKET_MODE", "ClaimedPath", "claim_path", "resolve_path"]

SOCKET_MODE: Final = 0o600
"""Default permissions: only the broker's own user may connect."""
_RETRY_SECONDS: Final = 0.02
_BACKLOG: Final = 1024


def resolve_path(path: str) -> Path:
    """Return the path of an address; a relative one is under the temporary directory."""
    return Path(tempfile.gettempdir()) / path


class ClaimedPath:
    """A listening socket and its file, owned until `release`."""

    def __init__(self, path: Path, listening: socket.socket) -> None:
        self.path = path
        self.socket = listening
        self._identity = _identity(path)

    def release(self) -> None:
        """Remove the socket file, unless another process has replaced it.

        Call this while the socket still listens, so that no other process takes it for stale.
        """
        try:
            if _identity(self.path) == self._identity:
                self.path.unlink()
        except FileNotFoundError:
            pass


async def claim_path(
    path: Path, *, mode: int = SOCKET_MODE, seconds_max: float = IPC_CLAIM_SECONDS_MAX
) -> ClaimedPath:
    """Listen at `path` with permissions `mode`; raise CannotListen.

    The last directory of the path is created if it is missing, those above it are not. A stale
    socket file is replaced; a socket in use, or any other file, is not.
    """
    size = len(os.fsencode(path))
    if size > IPC_PATH_BYTES_MAX:
        reason = f"the path has {size} bytes, the system takes {IPC_PATH_BYTES_MAX}"
        raise _path_error(path, reason, "choose a shorter one")
    try:
        _make_directory(path, mode)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _system_error(path, error) from None
    try:
        await _lock(path, directory, seconds_max)
        _clear_stale(path)
        return ClaimedPath(path, _bind(path, mode))
    finally:
        os.close(directory)  # releases the lock


def _make_directory(path: Path, mode: int) -> None:
    try:
        if not path.parent.exists():
            path.parent.mkdir()
            if mode & 0o077:  # other users must be able to enter it
                path.parent.chmod(0o755)
    except FileExistsError:  # another broker was faster
        pass
    except FileNotFoundError:
        remedy = f"make {path.parent.parent} first: only the last directory is made for you"
        raise _path_error(path, f"{path.parent.parent} does not exist", remedy) from None


async def _lock(path: Path, directory: int, seconds_max: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds_max
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() > deadline:
                reason = f"another process holds a lock on {path.parent}"
                raise _path_error(path, reason, "wait for it or choose another directory") from None
            await asyncio.sleep(_RETRY_SECONDS)
        except OSError as error:
            raise _system_error(path, error) from None
        else:
            return


def _clear_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _system_error(path, error) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise _path_error(
            path, "the file there is not a socket", "remove it or choose another path"
        )
    if _is_in_use(path):
        raise _path_error(path, "another process listens there", "stop it or choose another path")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _system_error(path, error) from None


def _is_in_use(path: Path) -> bool:
    """Return whether a process listens; only a refused connection means that none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(0)
        return caller.connect_ex(str(path)) not in {errno.ECONNREFUSED, errno.ENOENT}


def _bind(path: Path, mode: int) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file gets the permissions of the socket, less the umask.
        os.fchmod(listening.fileno(), mode)
        listening.bind(str(path))
        path.chmod(mode)
        listening.listen(_BACKLOG)
        listening.settimeout(0)
    except OSError as error:
        listening.close()
        raise _system_error(path, error) from None
    return listening


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _system_error(path: Path, error: OSError) -> CannotListen:
    reason = (error.strerror or str(error)).lower()
    return _path_error(path, reason, f"see to {path.parent} or choose another path")


def _path_error(path: Path, reason: str, remedy: str) -> CannotListen:
    return CannotListen(f"ipc://{path}", reason, remedy)

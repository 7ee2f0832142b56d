"""Object stores: files in a bucket, by URL, through the file systems of pyarrow.

Credentials, region and endpoint come from the usual variables of the environment, such as
AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL.
"""

import contextlib
import datetime as dt
import errno
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from penstock.limits import (
    OBJECT_STORE_CONNECT_SECONDS_MAX,
    OBJECT_STORE_PIECE_BYTES,
    OBJECT_STORE_REQUEST_SECONDS_MAX,
    OBJECT_STORE_TRIES_MAX,
)
from penstock.storage.files import TEMPORARY
from penstock.storage.urls import is_url, url_problem

__all__ = ["Copied", "ObjectStore", "StoredObject"]

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Variables with the endpoint of a store that is not Amazon's; the first that is set counts."""


class StoredObject(NamedTuple):
    """An object: its name below the URL, its size in bytes, and when it was written."""

    name: str
    size: int
    modified: float


class Copied(NamedTuple):
    """The size in bytes and the SHA-256, as hexadecimal digits, of a file that was copied."""

    size: int
    sha256: str


class ObjectStore:
    """The objects below a URL. Methods raise OSError; FileNotFoundError for a missing object.

    An object appears as a whole, or not at all. The value can be pickled.
    """

    def __init__(self, url: str) -> None:
        """Raise ValueError for a URL that cannot be used."""
        problem = url_problem(url)
        if problem is not None:
            raise ValueError(problem)
        self.url = url.rstrip("/")
        self.scheme = url.partition("://")[0]
        self._opened: tuple[fs.FileSystem, str] | None = None

    @classmethod
    def at(cls, place: "ObjectStore | Path | str") -> "ObjectStore":
        """Return the store of a URL, or of a folder of this machine; raise ValueError."""
        if isinstance(place, ObjectStore):
            return place
        if isinstance(place, str) and is_url(place):
            return cls(place)
        found = cls.__new__(cls)
        found.url = str(Path(place).absolute())
        found.scheme = "file"
        found._opened = None  # noqa: SLF001
        return found

    @property
    def folder(self) -> Path | None:
        """The folder of this machine, None for a bucket."""
        return Path(self.path()) if self.scheme == "file" else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStore) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection out: each process opens its own."""
        return {**self.__dict__, "_opened": None}

    def below(self, name: str) -> "ObjectStore":
        """Return the objects below a name."""
        return type(self).at(f"{self.url}/{name}")

    # --- Connection

    @property
    def file_system(self) -> fs.FileSystem:
        """The file system of pyarrow."""
        return self._open()[0]

    def path(self, name: str = "") -> str:
        """Return the path of an object in `file_system`."""
        root = self._open()[1]
        return f"{root}/{name}" if name else root

    def _open(self) -> tuple[fs.FileSystem, str]:
        if self._opened is None:
            with _os_errors():
                if self.scheme in {"s3", "gs"}:
                    place = self.url.partition("://")[2]
                    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS)), "")
                    self._opened = _file_system(self.scheme, os.getpid(), endpoint), place
                elif not is_url(self.url):
                    self._opened = fs.LocalFileSystem(), self.url
                else:
                    system, root = fs.FileSystem.from_uri(self.url)
                    self._opened = system, root.rstrip("/")
        return self._opened

    # --- Objects

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes, None if there is no such object."""
        with _os_errors():
            info = self.file_system.get_file_info(self.path(name))
        return int(info.size) if info.type == fs.FileType.File else None

    def stat(self, name: str) -> StoredObject:
        """Return an object's size and time; raise FileNotFoundError."""
        with _os_errors():
            info = self.file_system.get_file_info(self.path(name))
        if info.type != fs.FileType.File:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return StoredObject(name, info.size, info.mtime_ns / 1_000_000_000)

    def objects(
        self, name: str = "", *, recursive: bool = True, hidden: bool = True
    ) -> list[StoredObject]:
        """Return the objects below a name, in order; names are relative to the URL.

        Without `hidden`, folders whose names begin with _ are left out.
        """
        root = self.path()
        if self.scheme == "file":
            return sorted(_files(Path(root), name, recursive=recursive, hidden=hidden))
        selector = fs.FileSelector(self.path(name), allow_not_found=True, recursive=recursive)
        with _os_errors():
            found = self.file_system.get_file_info(selector)
        return sorted(
            StoredObject(
                each.path.removeprefix(root).lstrip("/"), each.size, each.mtime_ns / 1_000_000_000
            )
            for each in found
            if each.type == fs.FileType.File
            and (hidden or "/_" not in each.path.removeprefix(root))
        )

    def folders(self, name: str = "") -> list[str]:
        """Return the names of the folders directly below a name, in order."""
        selector = fs.FileSelector(self.path(name), allow_not_found=True)
        with _os_errors():
            found = self.file_system.get_file_info(selector)
        return sorted(each.base_name for each in found if each.type == fs.FileType.Directory)

    def read(self, name: str) -> bytes:
        """Return the contents of an object."""
        with _os_errors(), self.file_system.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Write an object, replacing one of that name."""
        with self.writing(name) as stream:
            stream.write(data)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[pa.NativeFile]:
        """Return a stream to write an object, replacing one of that name.

        A process that is killed before the end leaves no object. A store may keep the bytes
        written before an error; on a disk, the object is under its name only when it is complete.
        """
        local = self.scheme == "file"
        target = self.path(name)
        written = target + TEMPORARY if local else target
        with _os_errors():
            if local:
                Path(target).parent.mkdir(parents=True, exist_ok=True)
            with self.file_system.open_output_stream(written) as stream:
                yield stream
            if local:
                with Path(written).open("rb") as file:
                    os.fsync(file.fileno())
                Path(written).replace(target)

    def delete(self, name: str) -> bool:
        """Delete an object; return whether it existed."""
        try:
            with _os_errors():
                self.file_system.delete_file(self.path(name))
        except FileNotFoundError:
            return False
        return True

    def delete_all(self, name: str) -> None:
        """Delete all objects below a name."""
        if self.scheme == "file":
            shutil.rmtree(self.path(name), ignore_errors=True)
            return
        # The file system of pyarrow has empty objects for folders, which this deletes too.
        with contextlib.suppress(FileNotFoundError), _os_errors():
            self.file_system.delete_dir(self.path(name))

    def move(self, name: str, target: "ObjectStore", new: str) -> None:
        """Move an object to a name in the same bucket."""
        with _os_errors():
            if self.scheme == "file":
                Path(target.path(new)).parent.mkdir(parents=True, exist_ok=True)
            self.file_system.move(self.path(name), target.path(new))

    # --- Copies

    def upload(self, source: Path, name: str, going: Callable[[], bool] = lambda: True) -> Copied:
        """Copy a file to an object. Raise InterruptedError once `going` returns False.

        Check `size` before the copy is used: the object may be there in part after an error.
        """
        size, digest = 0, hashlib.sha256()
        with source.open("rb") as file, self.writing(name) as stream:
            while data := file.read(OBJECT_STORE_PIECE_BYTES):
                if not going():
                    raise InterruptedError(errno.EINTR, "the upload was stopped")
                stream.write(data)
                size += len(data)
                digest.update(data)
        return Copied(size, digest.hexdigest())

    def download(self, name: str, target: Path) -> Copied:
        """Copy an object to a new file."""
        size, digest = 0, hashlib.sha256()
        with (
            _os_errors(),
            self.file_system.open_input_stream(self.path(name)) as stream,
            target.open("xb") as file,
        ):
            while data := stream.read(OBJECT_STORE_PIECE_BYTES):
                file.write(data)
                size += len(data)
                digest.update(data)
        return Copied(size, digest.hexdigest())


def _files(root: Path, name: str, *, recursive: bool, hidden: bool) -> Iterator[StoredObject]:
    """Yield the files of a folder; other processes may remove some meanwhile."""
    for parent, folders, names in os.walk(root / name):
        folders[:] = [each for each in folders if recursive and (hidden or each[0] != "_")]
        for each in names:
            path = Path(parent, each)
            if each.endswith(TEMPORARY):
                continue
            with contextlib.suppress(FileNotFoundError):
                state = path.stat()
                modified = state.st_mtime_ns / 1_000_000_000
                yield StoredObject(str(path.relative_to(root)), state.st_size, modified)


@functools.lru_cache(maxsize=8)
def _file_system(scheme: str, process: int, endpoint: str) -> fs.FileSystem:  # noqa: ARG001
    """Return a file system of this process; it keeps its connections for further requests."""
    if scheme == "gs":
        limit = dt.timedelta(seconds=OBJECT_STORE_REQUEST_SECONDS_MAX)
        return fs.GcsFileSystem(retry_time_limit=limit)
    http, _, host = endpoint.rpartition("://")
    return fs.S3FileSystem(
        endpoint_override=host or None,
        scheme=http or None,
        connect_timeout=OBJECT_STORE_CONNECT_SECONDS_MAX,
        request_timeout=OBJECT_STORE_REQUEST_SECONDS_MAX,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=OBJECT_STORE_TRIES_MAX),
        background_writes=False,
    )


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raise errors of pyarrow, which are not all OSError, as OSError."""
    try:
        yield
    except OSError:
        raise
    except (pa.ArrowException, ValueError) as error:
        raise OSError(errno.EIO, str(error).splitlines()[0]) from error

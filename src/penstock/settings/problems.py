"""The problems of a configuration, collected with the source of each key."""

from collections.abc import Iterator, Mapping

from penstock.errors import ConfigError, InvalidConfig
from penstock.settings.toml_file import TomlFile

__all__ = ["Problems"]


class Problems:
    """Collects every problem of a configuration; knows which source set each key.

    A key that no source has set belongs to the file, where there is one. Values of keys that begin
    with one of `secrets` are not repeated in error messages.
    """

    def __init__(self, file: TomlFile | None, *, secrets: tuple[str, ...] = ()) -> None:
        self.found: list[ConfigError] = []
        self.secrets = secrets
        self._file = file
        self._sources: dict[str, str] = {}

    @property
    def sources(self) -> Mapping[str, str]:
        """The source of every key that a source has set."""
        return self._sources

    @property
    def tables(self) -> frozenset[str]:
        """The top-level tables that have a problem."""
        return frozenset(each.key.partition(".")[0].partition("[")[0] for each in self.found)

    def set_source(self, key: str, source: str) -> None:
        """Record that the value of `key`, and all below it, comes from `source`."""
        self._sources[key] = source

    def source_of(self, key: str) -> str:
        """Return the source of a key, or of the nearest table or list that contains it."""
        for each in _outward(key):
            if each in self._sources:
                return self._sources[each]
        return "defaults" if self._file is None else self._file.name

    def add(self, key: str, problem: str) -> None:
        """Add the problem of a key; its source is `file:line` if it is in the file."""
        source = self.source_of(key)
        if self._file is not None and source == self._file.name:
            lines = self._file.lines
            line = next((lines[each] for each in _outward(key) if each in lines), None)
            source = source if line is None else f"{source}:{line}"
        self.found.append(ConfigError(source, key, problem))

    def raise_found(self) -> None:
        """Raise InvalidConfig with all problems, if there are any."""
        if self.found:
            raise InvalidConfig.of(*self.found)


def _outward(key: str) -> Iterator[str]:
    """Yield a key, then the tables and lists that contain it, from the nearest."""
    while key:
        yield key
        key = key[: max(key.rfind("."), key.rfind("["), 0)]

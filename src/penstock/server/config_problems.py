"""The problems of a configuration, collected with the source of each key."""

from collections.abc import Mapping

from penstock.errors import ConfigError, InvalidConfig

__all__ = ["Problems"]


class Problems:
    """Collects every problem of a configuration; knows which source set each key.

    `default_source` is the source of a key that no source has set: the file, where there is one.
    """

    def __init__(self, default_source: str) -> None:
        self.found: list[ConfigError] = []
        self._default_source = default_source
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
        while key:
            if key in self._sources:
                return self._sources[key]
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return self._default_source

    def add(self, key: str, problem: str) -> None:
        """Add the problem of a key."""
        self.found.append(ConfigError(self.source_of(key), key, problem))

    def raise_found(self) -> None:
        """Raise InvalidConfig with all problems, if there are any."""
        if self.found:
            raise InvalidConfig.of(*self.found)

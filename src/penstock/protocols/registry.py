"""The registry of protocols. A protocol is added by its own files and one line of `_DECLARED`.

Numbers never change: rows in memory and middleware identify a protocol by its number, and a number
means the same protocol in every later version. Logs on disk store labels, not numbers: each segment
has a dictionary of labels.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from penstock.protocols.declaration import NUMBER_MAX, Carries, Protocol, Source, load

__all__ = ["FLIGHT", "HTTP", "PROTOCOLS", "SOURCES", "Registry"]

_DECLARED: Final = (
    "penstock.protocols.rheos1:RHEOS1",  # 1
    "penstock.protocols.rheos2:RHEOS2",  # 2
    "penstock.protocols.fleximq:FLEXIMQ",  # 3
    "penstock.protocols.herald:HERALD",  # 4
    "penstock.protocols.lamamq:LAMAMQ",  # 5
)


class Registry:
    """All protocols by their labels; iterating gives them in the order of their numbers."""

    def __init__(self, protocols: Iterable[Protocol]) -> None:
        """Raise ValueError if a number or a label is given twice, or a number is out of range."""
        self._ordered = tuple(sorted(protocols, key=lambda protocol: protocol.number))
        self._by_label = {protocol.label: protocol for protocol in self._ordered}
        self._by_number = {protocol.number: protocol for protocol in self._ordered}
        if not len(self._ordered) == len(self._by_label) == len(self._by_number):
            raise ValueError("a protocol's number or label is given twice")
        if not all(0 < number <= NUMBER_MAX for number in self._by_number):
            raise ValueError(f"the number of a protocol is from 1 to {NUMBER_MAX}")

    def __iter__(self) -> Iterator[Protocol]:
        return iter(self._ordered)

    def __len__(self) -> int:
        return len(self._ordered)

    def __contains__(self, label: object) -> bool:
        return label in self._by_label

    def __getitem__(self, label: str) -> Protocol:
        return self._by_label[label]

    def numbered(self, number: int) -> Protocol:
        """Return the protocol with a number; raise KeyError."""
        return self._by_number[number]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all protocols."""
        return tuple(self._by_label)


PROTOCOLS: Final = Registry(load(reference) for reference in _DECLARED)

FLIGHT: Final = Source(number=240, label="flight", title="Arrow Flight")
"""Rows of a table, published over Arrow Flight."""
HTTP: Final = Source(number=241, label="http", title="HTTP", carries=Carries(headers=True))
"""Messages published over the HTTP API."""

SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {source.label: source for source in (*PROTOCOLS, FLIGHT, HTTP)}
)
"""All sources of messages by label: the protocols, Flight and HTTP."""

"""Changes of topics that wait to be written to the state topic, with the next messages."""

import threading
from collections.abc import Iterable

import msgspec

from penstock.storage.kafka.state import TOPIC, StateTopic, TopicState

__all__ = ["TopicChanges"]


class TopicChanges:
    """Topics that were created, deleted, or got their first message.

    `add` and `remove` are called in one thread, `take` and `give_back` in another, `forget` in any.
    """

    def __init__(self, state: StateTopic, node: int) -> None:
        self._state = state
        self._node = node
        self._removed: set[str] = set()  # by this node; the state topic may not have it yet
        self._lock = threading.Lock()
        self._waiting: dict[str, bytes | None] = {}
        self._empty: dict[str, TopicState] = {}  # topics that have had no message

    def add_used(self, name: str, owner: str) -> None:
        """Note a topic that exists because it is used, unless the state topic has it."""
        if not self._knows(name):
            self.add(name, b"", owner)

    def _knows(self, name: str) -> bool:
        """Return whether a topic is in the state topic: another node may have created it."""
        with self._lock:
            if name in self._removed:
                return False
        topic = self._state.load(TOPIC + name, TopicState)
        return topic is not None and not topic.deleted

    def load(self) -> dict[str, TopicState]:
        """Return all topics of the state topic."""
        found = self._state.all(TOPIC, TopicState)
        self._empty = {
            name: each for name, each in found.items() if not each.stored and not each.deleted
        }
        return found

    def add(self, name: str, creator: bytes = b"", owner: str = "") -> None:
        """Note a new topic, with the 16 bytes of its creator's id or none, and its owner."""
        found = TopicState(creator=creator.hex(), owner=owner, node=self._node)
        with self._lock:
            self._removed.discard(name)
            self._empty[name] = found
            self._waiting[TOPIC + name] = msgspec.json.encode(found)

    def remove(self, name: str) -> None:
        """Note that a topic was deleted."""
        with self._lock:
            self._empty.pop(name, None)
            self._removed.add(name)
            deleted = TopicState(deleted=True, node=self._node)
            self._waiting[TOPIC + name] = msgspec.json.encode(deleted)

    def forget(self) -> None:
        """Forget removals that the state topic has, and there the oldest ones; raise OSError."""
        self._state.refresh()
        self._state.forget_topics(self._node)
        with self._lock:
            names = [name for name in self._removed if TOPIC + name not in self._waiting]
        for name in names:
            topic = self._state.load(TOPIC + name, TopicState)
            if topic is None or topic.deleted:
                with self._lock:
                    if TOPIC + name not in self._waiting:
                        self._removed.discard(name)

    def take(self, stored: Iterable[bytes]) -> dict[str, bytes | None]:
        """Return the changes since the last call; `stored` are topics of messages."""
        with self._lock:
            if self._empty:
                for encoded in stored:
                    name = encoded.decode()
                    topic = self._empty.pop(name, None)
                    if topic is not None:
                        full = TopicState(topic.creator, topic.owner, stored=True, node=self._node)
                        self._waiting[TOPIC + name] = msgspec.json.encode(full)
            changes, self._waiting = self._waiting, {}
        return changes

    def give_back(self, changes: dict[str, bytes | None]) -> None:
        """Keep changes that could not be written for the next attempt; newer ones win."""
        with self._lock:
            self._waiting = {**changes, **self._waiting}

"""Topics as a caller names them, and which subscription a delivered topic belongs to."""

import re
from typing import Final, TypeAlias

from penstock.client.errors import NotAChannel
from penstock.model import is_publishable
from penstock.patterns import compile_pattern
from penstock.replay import split_replay

__all__ = ["Topic", "TopicMatcher", "channel_of", "channel_topic", "plain_topic", "without_replay"]

Topic: TypeAlias = str | int
"""A topic's name; for herald also a channel's number."""

_CHANNEL: Final = re.compile(r"channel/(0|[1-9][0-9]{0,2})")


def without_replay(pattern: str) -> str:
    """Return a subscription without the place in history that it starts from, if it names one."""
    plain, _ = split_replay(pattern)
    return plain


def plain_topic(pattern: str) -> str | None:
    """Return the one topic that a subscription is for; None if it may be for several."""
    name = without_replay(pattern)
    return name if is_publishable(name) else None


def channel_of(topic: Topic) -> int:
    """Return the number of a herald channel; raise NotAChannel."""
    if isinstance(topic, str):
        match = _CHANNEL.fullmatch(topic)
        number = int(match[1]) if match else -1
    else:
        number = topic
    if not 0 <= number <= 255 or isinstance(topic, bool):
        raise NotAChannel(str(topic))
    return number


def channel_topic(channel: int) -> str:
    """Return the topic that a herald channel is, unless a broker's configuration names another."""
    return f"channel/{channel}"


class TopicMatcher:
    """Tells whether a topic belongs to a subscription, as a broker would."""

    def __init__(self, pattern: str) -> None:
        self._name = without_replay(pattern)
        self._expression = compile_pattern(self._name)

    def __call__(self, topic: str) -> bool:
        """Tell whether `topic` belongs to this subscription."""
        if self._expression is None:
            return topic == self._name
        return self._expression.fullmatch(topic) is not None

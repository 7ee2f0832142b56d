"""Names of topics and channels, and the matching of deliveries to subscriptions."""

import re
from typing import Final, TypeAlias

from penstock.client.errors import NotAChannel
from penstock.model import is_publishable
from penstock.patterns import compile_pattern
from penstock.replay import split_group, split_replay

__all__ = [
    "Topic",
    "TopicMatcher",
    "channel_of",
    "channel_topic",
    "is_in_group",
    "plain_topic",
    "resumed",
    "without_replay",
]

Topic: TypeAlias = str | int
"""Name of a topic; for herald also the number of a channel."""

_CHANNEL: Final = re.compile(r"channel/(0|[1-9][0-9]{0,2})")


def without_replay(pattern: str) -> str:
    """Return a subscription pattern without its replay position."""
    plain, _ = split_replay(pattern)
    return plain


def is_in_group(pattern: str) -> bool:
    """Return whether a subscription pattern names a consumer group."""
    return split_group(pattern)[1] is not None


def resumed(pattern: str) -> str:
    """Return the pattern with which a client subscribes again; a group knows its place itself."""
    return pattern if is_in_group(pattern) else without_replay(pattern)


def plain_topic(pattern: str) -> str | None:
    """Return the topic of a subscription, None if its pattern may match several."""
    name = without_replay(pattern)
    return name if is_publishable(name) else None


def channel_of(topic: Topic) -> int:
    """Return the number of a herald channel; raise NotAChannel."""
    number: object = topic
    if isinstance(topic, str):
        match = _CHANNEL.fullmatch(topic)
        number = int(match[1]) if match else None
    if type(number) is not int or not 0 <= number <= 255:
        raise NotAChannel(str(topic))
    return number


def channel_topic(channel: int) -> str:
    """Return the default topic of a herald channel; a broker's configuration may set another."""
    return f"channel/{channel}"


class TopicMatcher:
    """Matches topics against a subscription pattern by the broker's rules."""

    def __init__(self, pattern: str) -> None:
        self._name = without_replay(pattern)
        self._expression = compile_pattern(self._name)

    def __call__(self, topic: str) -> bool:
        """Return whether the pattern matches `topic`."""
        if self._expression is None:
            return topic == self._name
        return self._expression.fullmatch(topic) is not None

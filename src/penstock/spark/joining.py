"""Topics that join the subscription of a stream after its checkpoint was made, with their history.

A checkpoint has the subscription of the stream. If it is changed, the messages before the stream's
offset that the new subscription selects, and the old one did not, are the history of the topics
that join.
"""

import dataclasses
from typing import Final

import msgspec

from penstock.ports import Subscription
from penstock.ports.selection import Selection, TopicTest

__all__ = ["Outside", "joining_selection", "subscription_of", "subscription_text"]


_EVERYTHING: Final = Selection()


def subscription_of(selection: Selection) -> Subscription | None:
    """Return the topics of a selection, None for all."""
    if not selection.by_topic:
        return None
    return Subscription(
        topics=None if selection.topics is None else tuple(sorted(selection.topics)),
        patterns=selection.patterns,
        expression=selection.expression,
    )


def subscription_text(selection: Selection) -> str:
    """Return the topics of a selection as a checkpoint has them; empty for all."""
    subscription = subscription_of(selection)
    return "" if subscription is None else msgspec.json.encode(subscription).decode()


def joining_selection(old: str, new: str) -> Selection:
    """Return the messages that the subscription `new` selects and `old` does not."""
    before, after = _selection(old), _selection(new)
    tests = (Outside(subscription=before),)
    if not after.by_topic:
        return Selection(tests=tests)
    patterns = tuple(each for each in after.patterns or () if each not in (before.patterns or ()))
    return Selection(
        topics=(after.topics or frozenset()) - (before.topics or frozenset()),
        patterns=patterns or None,
        expression=after.expression,
        tests=tests,
    )


def _selection(text: str) -> Selection:
    if not text:
        return Selection()
    found = msgspec.json.decode(text, type=Subscription)
    topics = None if found.topics is None else frozenset(found.topics)
    return Selection(topics, found.patterns, found.expression)


@dataclasses.dataclass(frozen=True)
class Outside(TopicTest):
    """Tests whether a topic is not in a subscription."""

    test: str = "outside"
    text: str = ""
    subscription: Selection = _EVERYTHING

    def __call__(self, name: str) -> bool:
        """See TopicTest."""
        return self.subscription.by_topic and not self.subscription.wanted(name)

"""Which topics ask for which durability."""

from collections.abc import Sequence

from penstock._kernels.topics import TopicTable
from penstock.model import Durability
from penstock.patterns import compile_pattern

__all__ = ["DurabilityRules"]


class DurabilityRules:
    """A default, and patterns that say otherwise: the first that fits a topic decides."""

    def __init__(
        self,
        default: Durability = Durability.FSYNC,
        patterns: Sequence[tuple[str, Durability]] = (),
    ) -> None:
        """Raise InvalidPattern."""
        self.default = default
        self._patterns = [
            (text, compile_pattern(text), durability) for text, durability in patterns
        ]
        self._of_topic = bytearray()

    def of(self, name: str) -> Durability:
        """Return what a topic asks for."""
        for text, expression, durability in self._patterns:
            if text == name if expression is None else expression.fullmatch(name):
                return durability
        return self.default

    def table(self, topics: TopicTable) -> bytearray | None:
        """Return what each topic asks for, by its number; None where all ask for the default."""
        if not self._patterns:
            return None
        known = self._of_topic
        if len(known) < len(topics):
            known = bytearray(known)  # the kernel may hold the old one
            known += bytes(
                self.of(topics.name(number)) for number in range(len(known), len(topics))
            )
            self._of_topic = known
        return known

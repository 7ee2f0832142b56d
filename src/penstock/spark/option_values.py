"""Values of options by case-insensitive name; those that do not exist raise InvalidOption."""

from collections.abc import Mapping
from typing import Final

from penstock.spark.errors import InvalidOption
from penstock.spark.kafka_place import BOOTSTRAP, PREFIX
from penstock.storage.kafka.urls import is_kafka_url

__all__ = ["OptionValues"]

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options of Spark itself that Spark also passes to a sink."""
_BOOLEANS: Final = {"true": True, "false": False}
_REMOVED: Final = {
    "filterpushdown": "it was removed, since Spark applies the filters of one use of a DataFrame"
    " to its other uses; select by subscribe, startingTimestamp and endingTimestamp"
}


_OF_KAFKA: Final = {
    "groupidprefix": "the name of the consumer group is the option group",
    "kafkaconsumer.polltimeoutms": "calls are retried for a fixed time",
    "fetchoffset.numretries": "calls are retried for a fixed time",
    "fetchoffset.retryintervalms": "calls are retried for a fixed time",
}
"""Options of Spark's Kafka source that have another name here, or no meaning."""


def _unknown(name: str) -> str:
    """Return what is wrong with an option that does not exist."""
    if name in _REMOVED:
        return _REMOVED[name]
    if name in _OF_KAFKA:
        return f"it is an option of Spark's Kafka source, and {_OF_KAFKA[name]}"
    if name.startswith(PREFIX):
        return f"it is a setting of Kafka's clients, and has a meaning only beside {BOOTSTRAP}"
    return "there is no such option"


class OptionValues:
    """Option values by case-insensitive name."""

    def __init__(
        self,
        options: Mapping[str, str],
        allowed: tuple[str, ...],
        use: str,
        *,
        every: tuple[str, ...],
    ) -> None:
        """Raise InvalidOption unless all are `allowed`; `every` has the names of all uses."""
        self._values = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in allowed}
        if BOOTSTRAP in allowed and self.reads_kafka:
            known.update(name for name in self._values if name.startswith(PREFIX))
        names = {name.lower(): name for name in every}
        for name in self._values:
            if name not in known | _OF_SPARK:
                problem = f"it is not for {use}" if name in names else _unknown(name)
                raise InvalidOption(names.get(name, name), problem, ", ".join(allowed))

    @property
    def reads_kafka(self) -> bool:
        """Whether the log is on Kafka."""
        return BOOTSTRAP in self._values or is_kafka_url(self._values.get("path", ""))

    @property
    def kafka_settings(self) -> dict[str, str]:
        """Settings of librdkafka, without their prefix."""
        return {
            name.removeprefix(PREFIX): value
            for name, value in self._values.items()
            if name.startswith(PREFIX) and name != BOOTSTRAP
        }

    @property
    def is_empty(self) -> bool:
        """Whether no option was given."""
        return not self._values

    def text(self, name: str) -> str | None:
        """Return the value of an option, None if it is not set."""
        return self._values.get(name.lower())

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether an option is true; raise InvalidOption."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in _BOOLEANS:
            raise InvalidOption(name, f"{text!r} is neither", "true, false")
        return _BOOLEANS[text.strip().lower()]

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """Return the number of an option, None if it is not set; raise InvalidOption."""
        text = self.text(name)
        if text is None:
            return None
        number = text.strip()
        if not (number.isascii() and number.isdigit() and least <= int(number) <= most):
            allowed = f"a whole number from {least} to {most}"
            raise InvalidOption(name, f"{text!r} is out of range or no number", allowed)
        return int(number)

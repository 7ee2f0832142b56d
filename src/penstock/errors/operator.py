"""Errors that the operator must act on: settings, addresses, files."""

from typing import Self

from penstock.errors.base import OperatorError
from penstock.errors.codes import ErrorCode

__all__ = [
    "BadAddress",
    "CannotAudit",
    "CannotExport",
    "CannotKeep",
    "CannotListen",
    "CannotRead",
    "CannotReadKafka",
    "CannotReadStore",
    "CertificateUnusable",
    "ConfigError",
    "InvalidConfig",
    "KafkaNotReached",
    "KafkaUnusable",
    "LogFormatTooNew",
    "LogInUse",
    "NodeTakenOver",
]


class ConfigError(OperatorError):
    """A setting that is unknown, wrong or missing."""

    code = ErrorCode.INVALID_CONFIG

    source: str  # file, environment variable or option
    key: str  # path of the setting; empty if the whole source is unusable
    problem: str  # says what was expected

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.problem) if part)


class InvalidConfig(ConfigError):
    """A configuration with one or more problems; its other fields are those of the first."""

    problems: tuple[ConfigError, ...]

    @classmethod
    def of(cls, *problems: ConfigError) -> Self:
        """Return the error of these problems, of which there is at least one."""
        first = problems[0]
        return cls(first.source, first.key, first.problem, problems)

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


class CannotListen(OperatorError):
    """The broker cannot listen on an address."""

    code = ErrorCode.CANNOT_LISTEN
    template = "cannot listen on {url}: {reason}; {remedy}"

    url: str
    reason: str
    remedy: str


class BadAddress(OperatorError):
    """A listener's URL is malformed, or has an option that its scheme does not support."""

    code = ErrorCode.BAD_ADDRESS
    template = "address {url!r}: {problem}"

    url: str
    problem: str


class CertificateUnusable(OperatorError):
    """A certificate or private key that cannot be used for TLS."""

    code = ErrorCode.CERTIFICATE_UNUSABLE
    template = "TLS file {path}: {problem}"

    path: str
    problem: str


class LogFormatTooNew(OperatorError):
    """The log was written by a later version of Penstock and cannot be read safely."""

    code = ErrorCode.LOG_FORMAT_TOO_NEW
    template = (
        "{path} has log format {found}, this Penstock knows up to {known}: "
        "use the version that wrote it, or a later one"
    )

    path: str
    found: int
    known: int


class CannotKeep(OperatorError):
    """The broker cannot keep a log in this folder."""

    code = ErrorCode.CANNOT_KEEP
    template = "cannot keep messages in {folder}: {reason}; give another with --data"

    folder: str
    reason: str


class CannotRead(OperatorError):
    """A folder or file has no readable log."""

    code = ErrorCode.CANNOT_READ
    template = "cannot read a log in {path}: {reason}; give a broker's --data folder"

    path: str
    reason: str


class CannotReadKafka(CannotRead):
    """A topic of Kafka has no readable log; `path` is its URL."""

    template = "cannot read the log {path}: {reason}"


class CannotReadStore(CannotRead):
    """An object store has no readable log; `path` is its URL."""

    template = "cannot read the log {path}: {reason}"


class CannotExport(OperatorError):
    """Messages cannot be exported to this file."""

    code = ErrorCode.CANNOT_EXPORT
    template = "cannot export to {path}: {reason}; {remedy}"

    path: str
    reason: str
    remedy: str = "give a file in a folder that is there"


class CannotAudit(OperatorError):
    """The file of the audit log cannot be opened."""

    code = ErrorCode.CANNOT_AUDIT
    template = "cannot write the audit log {path}: {reason}; set audit.file"

    path: str
    reason: str


class LogInUse(OperatorError):
    """Another process writes this log."""

    code = ErrorCode.LOG_IN_USE
    template = "another process writes the log in {folder}: stop it, or give --data"

    folder: str


class KafkaUnusable(OperatorError):
    """The broker cannot keep its log on this Kafka."""

    code = ErrorCode.KAFKA_UNUSABLE
    template = "cannot keep messages on Kafka at {bootstrap}: {reason}; {remedy}"

    bootstrap: str
    reason: str
    remedy: str


class KafkaNotReached(KafkaUnusable):
    """Kafka did not answer when the broker started; a later start may succeed."""


class NodeTakenOver(OperatorError):
    """Another process with the same node number writes this node's partition."""

    code = ErrorCode.NODE_TAKEN_OVER
    template = (
        "another process, on {host}, has taken over node {node} of topic {topic!r}: "
        "give each process a storage.node of its own"
    )

    node: int
    topic: str
    host: str = "an unknown host"

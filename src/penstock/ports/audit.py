"""The audit log: who logged in, what was refused, what was changed."""

import enum
from collections.abc import Sequence
from typing import Final, TypeAlias
from typing import Protocol as Port

__all__ = ["NO_AUDIT", "Audit", "AuditEvent", "AuditValue"]

AuditValue: TypeAlias = str | int | bool | Sequence[str] | None


class AuditEvent(enum.StrEnum):
    """The kinds of events. `docs/operating.md` lists the fields of each."""

    STARTED = "started"
    STOPPED = "stopped"
    LOGIN = "login"
    LOGIN_FAILED = "login-failed"
    REFUSED = "refused"
    QUOTA_REACHED = "quota-reached"
    ADMINISTERED = "administered"
    CONFIGURATION_CHANGED = "configuration-changed"
    CONFIGURATION_REJECTED = "configuration-rejected"
    RULES_CHANGED = "rules-changed"
    PRINCIPALS_CHANGED = "principals-changed"
    DROPPED = "dropped"


class Audit(Port):
    """Records security events. Any thread may call; a call never blocks and never raises.

    Secrets are not passed to it. Text may come from a client: the implementation escapes and cuts
    it.
    """

    def record(self, event: AuditEvent, /, **fields: AuditValue) -> None:
        """Record an event with its fields."""


class _NoAudit:
    def record(self, event: AuditEvent, /, **fields: AuditValue) -> None:
        pass


NO_AUDIT: Final[Audit] = _NoAudit()
"""Records nothing."""

"""The last refused acts and log-ins, for `/api/refusals`.

Events pass through on their way to the audit log, so that both know the same.
"""

import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import structlog

from penstock.limits import HTTP_REFUSALS_MAX
from penstock.ports import Audit, AuditEvent
from penstock.ports.audit import AuditValue

__all__ = ["RecentRefusals", "RefusalCount"]

log = structlog.get_logger("penstock.refusals")

LOG_IN: Final = "log-in"
_TEXT_CHARACTERS_MAX: Final = 200

_Key = tuple[str, str, str, str, str]


@dataclasses.dataclass(slots=True)
class RefusalCount:
    """A refusal and how often it happened. Times are seconds since the epoch.

    `client` is the name of the client that it happened to last, empty if it has none. `rule` is the
    rule that denied it last, empty if none did.
    """

    principal: str
    host: str
    protocol: str
    action: str
    name: str
    first: float
    last: float
    count: int = 1
    client: str = ""
    rule: str = ""


class RecentRefusals:
    """A `ports.Audit` that keeps refusals and passes all events on. Any thread may call.

    Refusals that differ in the port of the client only are counted as one. Above HTTP_REFUSALS_MAX
    different ones, the one that is longest ago is forgotten.
    """

    def __init__(self, inner: Audit, *, kept_max: int = HTTP_REFUSALS_MAX) -> None:
        self._inner = inner
        self._kept_max = kept_max
        self._kept: OrderedDict[_Key, RefusalCount] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, event: AuditEvent, /, **fields: AuditValue) -> None:
        """See ports.Audit."""
        if event is AuditEvent.REFUSED:
            self._keep(fields, action=_text(fields, "action"), name=_text(fields, "name"))
        elif event is AuditEvent.LOGIN_FAILED:
            self._keep(fields, action=LOG_IN, name=_text(fields, "reason"))
        self._inner.record(event, **fields)

    def newest(self) -> list[RefusalCount]:
        """Return copies of the refusals, the newest first."""
        with self._lock:
            return [dataclasses.replace(each) for each in reversed(self._kept.values())]

    def _keep(self, fields: Mapping[str, AuditValue], *, action: str, name: str) -> None:
        host = _text(fields, "peer").rpartition(":")[0]
        key = (_text(fields, "principal"), host, _text(fields, "protocol"), action, name)
        now = time.time()
        with self._lock:
            known = self._kept.get(key)
            is_new = known is None
            if known is None:
                known = self._kept[key] = RefusalCount(*key, first=now, last=now, count=0)
                if len(self._kept) > self._kept_max:
                    self._kept.popitem(last=False)
            known.last = now
            known.count += 1
            known.client = _text(fields, "client")
            known.rule = _text(fields, "rule")
            self._kept.move_to_end(key)
        if is_new and action != LOG_IN:  # those are logged where they happen
            log.info(
                "not allowed", principal=key[0], host=host, protocol=key[2], act=action, name=name
            )


def _text(fields: Mapping[str, AuditValue], name: str) -> str:
    value = fields.get(name)
    return "" if value is None else str(value)[:_TEXT_CHARACTERS_MAX]

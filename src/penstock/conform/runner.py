"""Cases run against a server, one after the other."""

import dataclasses
import enum
import ssl
import time
from collections.abc import Callable, Iterable, Iterator

from penstock.client.address import Address
from penstock.client.errors import ConnectFailed
from penstock.conform.case import Case
from penstock.conform.peer import Failed, Skipped, spelled
from penstock.conform.stage import Stage
from penstock.limits import CONFORM_SILENT_CASES_MAX

__all__ = ["Outcome", "Result", "run"]


class Outcome(enum.StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """A case and how it ended: of a failure the bytes in hex, of a skipped case the reason."""

    case: Case
    outcome: Outcome
    seconds: float = 0.0
    sent: str = ""
    expected: str = ""
    got: str = ""
    reason: str = ""


def run(
    cases: Iterable[Case],
    address: Address,
    *,
    seconds_max: float,
    profile: bool = False,
    tls: ssl.SSLContext | None = None,
    enter: Callable[[Stage], object] | None = None,
) -> Iterator[Result]:
    """Yield the result of each case; `profile` runs those of Penstock's profile too.

    `enter` has a client let in, before all: if the server refuses it, all cases are skipped. A
    server that sends not one byte in the first CONFORM_SILENT_CASES_MAX gets no more of them.
    """
    refusal = (
        "" if enter is None else _refusal(enter, Stage(address, seconds_max=seconds_max, tls=tls))
    )
    silent = 0
    for case in cases:
        if case.profile and not profile:
            reason = "the specification leaves this open; --profile checks Penstock's choice"
            yield Result(case, Outcome.SKIPPED, reason=reason)
            continue
        if refusal:
            yield Result(case, Outcome.SKIPPED, reason=refusal)
            continue
        started = time.monotonic()
        stage = Stage(address, seconds_max=seconds_max, tls=tls)
        result = _run(case, stage)
        yield dataclasses.replace(result, seconds=round(time.monotonic() - started, 3))
        if stage.heard:
            silent = -1
        elif silent >= 0:
            silent += 1
            if silent == CONFORM_SILENT_CASES_MAX:
                return


def _refusal(enter: Callable[[Stage], object], stage: Stage) -> str:
    """Return why the server lets nobody in; nothing if it does, or does something wrong."""
    try:
        with stage:
            enter(stage)
    except Skipped as skipped:
        return skipped.reason
    except (Failed, ConnectFailed):
        pass  # a case finds that too, and shows it
    return ""


def _run(case: Case, stage: Stage) -> Result:
    try:
        with stage:
            case.steps(stage)
    except Failed as failure:
        return Result(
            case,
            Outcome.FAILED,
            sent=spelled(failure.sent),
            expected=failure.expected,
            got=failure.got,
        )
    except Skipped as skipped:
        return Result(case, Outcome.SKIPPED, reason=skipped.reason)
    except ConnectFailed as error:
        return Result(case, Outcome.FAILED, expected="a connection", got=str(error))
    return Result(case, Outcome.PASSED)

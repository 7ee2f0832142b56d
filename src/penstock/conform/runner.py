"""The runner: runs cases against a server, one after the other."""

import dataclasses
import enum
import ssl
import time
from collections.abc import Callable, Iterable, Iterator

from penstock.client.address import Address
from penstock.client.errors import ConnectFailed
from penstock.conform.case import Case, Setup
from penstock.conform.context import CaseContext
from penstock.conform.peer import Failed, Skipped, in_hex
from penstock.limits import CONFORM_SILENT_CASES_MAX

__all__ = ["Outcome", "Result", "run"]


class Outcome(enum.StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of a case: the bytes of a failure in hex, or why the case was skipped."""

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
    setup: Setup | None = None,
    tls: ssl.SSLContext | None = None,
    enter: Callable[[CaseContext], object] | None = None,
    restart: Callable[[], Address] | None = None,
    make_context: Callable[[], CaseContext] | None = None,
) -> Iterator[Result]:
    """Yield the result of each case.

    Cases of Penstock's profile run only with `profile`. Cases that require a setup run only if
    the server has it, as `setup` says. `enter` connects a client first: if the server refuses it,
    all cases are skipped. `restart` restarts the server and returns its address. `make_context`
    replaces the context of each case. The run stops if the server sends nothing in the first
    CONFORM_SILENT_CASES_MAX cases.
    """
    refusal = ""
    if enter is not None:
        refusal = _refusal(enter, CaseContext(address, seconds_max=seconds_max, tls=tls))
    silent = 0
    for case in cases:
        if case.requires is not None and case.requires is not setup:
            reason = f"needs {case.requires.description}"
            yield Result(case, Outcome.SKIPPED, reason=reason)
            continue
        if case.profile and not profile:
            reason = "the specification leaves this open; --profile checks Penstock's choice"
            yield Result(case, Outcome.SKIPPED, reason=reason)
            continue
        if refusal:
            yield Result(case, Outcome.SKIPPED, reason=refusal)
            continue
        started = time.monotonic()
        if make_context is None:
            context = CaseContext(address, seconds_max=seconds_max, tls=tls, restart=restart)
        else:
            context = make_context()
        result = _run(case, context)
        yield dataclasses.replace(result, seconds=round(time.monotonic() - started, 3))
        if context.heard:
            silent = -1
        elif silent >= 0:
            silent += 1
            if silent == CONFORM_SILENT_CASES_MAX:
                return


def _refusal(enter: Callable[[CaseContext], object], context: CaseContext) -> str:
    """Return why the server refuses the client, or nothing if it does not."""
    try:
        with context:
            enter(context)
    except Skipped as skipped:
        return skipped.reason
    except (Failed, ConnectFailed):
        pass  # the cases fail in the same way and report it
    return ""


def _run(case: Case, context: CaseContext) -> Result:
    try:
        with context:
            case.steps(context)
    except Failed as failure:
        return _failure(case, context, failure)
    except Skipped as skipped:
        return Result(case, Outcome.SKIPPED, reason=skipped.reason)
    except (LookupError, TypeError) as error:  # of a MessagePack value with another structure
        return _failure(case, context, Failed("a value of the right structure", repr(error)))
    except ConnectFailed as error:
        return Result(case, Outcome.FAILED, expected="a connection", got=str(error))
    return Result(case, Outcome.PASSED)


def _failure(case: Case, context: CaseContext, failure: Failed) -> Result:
    where = f" (at {context.parameter})" if context.parameter else ""
    return Result(
        case,
        Outcome.FAILED,
        sent=in_hex(failure.sent or context.sent),
        expected=failure.expected + where,
        got=failure.got,
    )

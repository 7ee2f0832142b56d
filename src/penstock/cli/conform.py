"""`penstock conform`: check whether a server keeps the rules of its protocol."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.common.client_options import Ca, ProtocolChoice, Timeout, find_broker
from penstock.cli.common.failure import CommandFailed
from penstock.cli.common.output import Json, quiet_pipe, tell
from penstock.cli.lazy_command import examples
from penstock.cli.protocol_help import LABELS
from penstock.limits import CONFORM_SECONDS_MAX, CONFORM_SILENT_CASES_MAX

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from penstock.conform import Case, Outcome, Result, Suite

__all__ = ["CONFORM_EXAMPLES", "conform"]

EXIT_FAILED: Final = 1
NOWHERE: Final = "tcp://127.0.0.1:1"
"""The URL that is parsed where only cases are listed."""

CONFORM_EXAMPLES: Final = examples(
    "penstock conform tcp://127.0.0.1:7000 --protocol herald",
    "penstock conform lamamq://127.0.0.1:7000 --profile --json",
    "penstock conform --protocol fleximq --list",
)


def conform(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="The server: tcp, tls, ipc, ws or wss; or a protocol, as herald://127.0.0.1:7000.",
            envvar="PENSTOCK_URL",
            show_default=False,
        ),
    ] = None,
    *,
    protocol: ProtocolChoice = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Check Penstock's decisions too, where the specification is open."
        ),
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="Print the cases; run none of them.")
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this case; may be given again.", show_default=False
        ),
    ] = None,
    ca: Ca = None,
    json: Json = False,
    timeout: Timeout = CONFORM_SECONDS_MAX,
) -> None:
    """Run conformance cases against a server of a protocol, and print a report.

    Ends with 0 only if no case failed. The server should accept any client and have no other
    clients meanwhile. Cases that need a special configuration of the server are skipped.
    """
    from penstock.conform import suite  # noqa: PLC0415  (so that --help starts fast)

    if url is None and not listing:
        raise typer.BadParameter("say which server, as tcp://127.0.0.1:7000.", param_hint="URL")
    if protocol is None and (url or "").partition("://")[0] not in LABELS:
        raise typer.BadParameter(
            "give --protocol, or a URL such as herald://127.0.0.1:7000.", param_hint="--protocol"
        )
    server = find_broker(url or NOWHERE, protocol, default="", ca=ca)
    found = suite(server.protocol)
    cases = _chosen(found, case or [])
    if listing:
        with quiet_pipe():
            sys.stdout.write(_listing_json(cases) if json else _listing(cases))
        return
    failed = _run(
        server.url,
        cases,
        found,
        profile=profile,
        json=json,
        seconds_max=timeout,
        tls=server.options.get("tls"),
    )
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _chosen(suite: "Suite", names: list[str]) -> "tuple[Case, ...]":
    known = {case.name for case in suite.cases}
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                f"{name!r} is no case of {suite.label}; --list prints them.", param_hint="--case"
            )
    return tuple(case for case in suite.cases if not names or case.name in names)


def _run(
    url: str,
    cases: "tuple[Case, ...]",
    suite: "Suite",
    *,
    profile: bool,
    json: bool,
    seconds_max: float,
    tls: "ssl.SSLContext | None",
) -> int:
    """Run cases and print the report; return how many failed. Raise OperatorError."""
    from penstock.client.address import parse_address  # noqa: PLC0415
    from penstock.client.errors import ConnectFailed, InvalidAddress  # noqa: PLC0415
    from penstock.conform import Outcome, run  # noqa: PLC0415
    from penstock.conform.connections import open_connection  # noqa: PLC0415

    try:
        address = parse_address(url)
        open_connection(address, seconds_max=seconds_max, tls=tls).close()
    except InvalidAddress as error:
        raise CommandFailed(str(error), "give a URL such as tcp://127.0.0.1:7000") from None
    except ConnectFailed as error:
        raise CommandFailed(str(error), "start the server, or give its URL") from None
    results: list[Result] = []
    with quiet_pipe():
        for result in run(
            cases,
            address,
            seconds_max=seconds_max,
            profile=profile,
            tls=tls,
            enter=suite.enter,
        ):
            results.append(result)
            if not json:
                sys.stdout.write(_result_text(result))
                sys.stdout.flush()
        counts = {outcome: sum(r.outcome is outcome for r in results) for outcome in Outcome}
        if json:
            sys.stdout.write(_report_json(url, suite.label, results, counts))
        else:
            summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
            sys.stdout.write(f"{suite.label} at {url}: {summary}\n")
    if len(results) < len(cases):
        tell(
            f"stopped, because {url} sent not one byte in {CONFORM_SILENT_CASES_MAX} cases; "
            f"give the URL of a {suite.label} server, or --timeout more seconds"
        )
    return counts[Outcome.FAILED]


# --- The report -----------------------------------------------------------------------------------


def _result_text(result: "Result") -> str:
    case = result.case
    lines = [f"{result.outcome:<7}  {case.name}  {case.rule} ({_where(case)})"]
    if result.outcome == "failed":
        lines += [
            f"         sent      {result.sent or '(nothing)'}",
            f"         expected  {result.expected}",
            f"         got       {result.got}",
        ]
    elif result.reason:
        lines.append(f"         {result.reason}")
    return "".join(f"{line}\n" for line in lines)


def _where(case: "Case") -> str:
    where = f"{case.section}, profile" if case.profile else case.section
    return where if case.requires is None else f"{where}, setup {case.requires}"


def _listing(cases: "Sequence[Case]") -> str:
    return "".join(f"{case.name}  {case.rule} ({_where(case)})\n" for case in cases)


def _facts(case: "Case") -> dict[str, object]:
    return {
        "case": case.name,
        "section": case.section,
        "rule": case.rule,
        "profile": case.profile,
        "requires": case.requires,
    }


def _listing_json(cases: "Sequence[Case]") -> str:
    import json  # noqa: PLC0415

    return json.dumps([_facts(case) for case in cases], ensure_ascii=False, indent=2) + "\n"


def _report_json(
    url: str, protocol: str, results: "Sequence[Result]", counts: "Mapping[Outcome, int]"
) -> str:
    import json  # noqa: PLC0415

    report = {
        "url": url,
        "protocol": protocol,
        **{str(outcome): count for outcome, count in counts.items()},
        "cases": [
            {
                **_facts(result.case),
                "outcome": result.outcome.value,
                "seconds": result.seconds,
                "sent": result.sent or None,
                "expected": result.expected or None,
                "got": result.got or None,
                "reason": result.reason or None,
            }
            for result in results
        ],
    }
    return json.dumps(report, ensure_ascii=False, indent=2) + "\n"

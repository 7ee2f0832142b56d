"""`penstock limits`: how much of its limits a running broker uses, and the quotas of principals."""

import sys
from typing import Any, Final

import typer

from penstock.cli.common.columns import print_columns
from penstock.cli.common.output import Json, json_line, quiet_pipe
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl

__all__ = ["LIMITS_EXAMPLES", "limits"]

LIMITS_EXAMPLES: Final = examples("penstock limits", "penstock limits --json | jq '.quotas[]'")
_LIMITS: Final = ("USED", "MAXIMUM", "LIMIT")
_QUOTAS: Final = (
    "CLIENTS",
    "MAXIMUM",
    "MESSAGES/S",
    "BYTES/S",
    "STORED",
    "MAXIMUM",
    "TOPICS",
    "MAXIMUM",
    "REACHED",
    "PRINCIPAL",
)


def limits(*, url: ApiUrl = API_URL_DEFAULT, ca: ApiCa = None, json: Json = False) -> None:
    """Show how much of its limits a broker uses, and the quotas of principals.

    STORED are the bytes of a principal in the log. REACHED says how often its clients were at one
    of its quotas. `-` is no limit.
    """
    found = Api(url, ca=ca).get("/api/limits")
    with quiet_pipe():
        if json:
            sys.stdout.buffer.write(json_line(found))
            sys.stdout.buffer.flush()
            return
        rows = [
            (f"{each['used']:,}", f"{each['maximum']:,}", shown(each["name"]))
            for each in found["limits"]
        ]
        print_columns([_LIMITS, *rows], left=1)
        if found["quotas"]:
            typer.echo()
            print_columns([_QUOTAS, *map(_quota, found["quotas"])], left=1)


def _quota(each: dict[str, Any]) -> tuple[str, ...]:
    rates = ("connections_max", "messages_per_second_max", "bytes_per_second_max")
    return (
        f"{each['connections']:,}",
        *(f"{each[name]:,}" if each[name] else "-" for name in rates),
        f"{each['stored_bytes']:,}",
        f"{each['stored_bytes_max']:,}" if each["stored_bytes_max"] else "-",
        f"{each['topics']:,}",
        f"{each['topics_max']:,}" if each["topics_max"] else "-",
        f"{sum(each['reached'].values()):,}",
        shown(each["principal"]),
    )

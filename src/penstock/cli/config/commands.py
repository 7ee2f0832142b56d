"""The options of `penstock config`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.common.output import Json
from penstock.cli.lazy_command import examples

__all__ = ["CHECK_EXAMPLES", "SHOW_EXAMPLES", "check", "show"]

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "--config",
        metavar="FILE",
        help="A penstock.toml; by default the file that PENSTOCK_CONFIG names, if set.",
        show_default=False,
    ),
]

SHOW_EXAMPLES: Final = examples(
    "penstock config show --file penstock.toml",
    "penstock config show | grep -v '# default'",
    "penstock config show --json | jq '.settings[\"broker.durability\"]'",
)
CHECK_EXAMPLES: Final = examples(
    "penstock config check --file penstock.toml",
    "penstock config check --json | jq -r '.problems[].key'",
)


def show(*, file: File = None, json: Json = False) -> None:
    """Print every setting of a broker and its source. Secrets are hidden.

    The output is TOML, one line per setting, with the source in a comment.
    """
    from penstock.cli.config.report import show_settings  # noqa: PLC0415  (--help stays fast)

    show_settings(file, json=json)


def check(*, file: File = None, json: Json = False) -> None:
    """Check file and environment, and print a line for each problem. Ends with 1 if there are any.

    A line has the source, the key and what is expected. Lists count from 0.
    """
    from penstock.cli.config.report import check_settings  # noqa: PLC0415  (--help stays fast)

    check_settings(file, json=json)

"""Options of the commands that read a log on disk."""

from pathlib import Path
from typing import Annotated, Final

import typer

__all__ = ["DATA_DEFAULT", "Data", "From", "KafkaSettings", "Partition", "Pattern", "To"]

DATA_DEFAULT: Final = Path("penstock-data")

Data = Annotated[
    Path,
    typer.Option(metavar="DIR", help="The broker's data folder.", envvar="PENSTOCK_DATA__FOLDER"),
]
Partition = Annotated[int, typer.Option(min=0, max=4095, help="The partition.")]
Pattern = Annotated[
    str | None,
    typer.Argument(
        metavar="PATTERN",
        help="Topics, with wildcards as in a subscription; all topics by default.",
        show_default=False,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="The first message: earliest, an offset, a time, or -15m for 15 minutes ago.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="WHERE",
        help="Stop before this offset or time; by default after the last message.",
        show_default=False,
    ),
]
KafkaSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help="A setting of librdkafka, such as security.protocol=SSL.",
        show_default=False,
    ),
]

"""`penstock spark package`: the archive that brings Penstock to the executors of a cluster."""

import shlex
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from penstock.cli.common.columns import size_text
from penstock.cli.common.output import Json
from penstock.cli.lazy_command import examples
from penstock.errors import CannotExport

__all__ = ["PACKAGE_EXAMPLES", "package"]

PACKAGE_EXAMPLES: Final = examples(
    "penstock spark package penstock-spark.tar.gz",
    "penstock spark package penstock-spark.zip --without pandas --without pyarrow",
)


def package(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT.tar.gz",
            help="The archive: .tar.gz, .tgz, .tar or .zip.",
            show_default=False,
        ),
    ],
    *,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A package that executors have already.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    json: Json = False,
) -> None:
    """Write an archive of Penstock and the packages it needs, for `spark-submit --archives`.

    It is for the Python version and the platform of this machine. PySpark is not in it.
    """
    from penstock.spark.package import make_package  # noqa: PLC0415

    if out.exists() and not force:
        raise CannotExport(str(out), "it exists already", "remove it, or give --force")
    made = make_package(out, without=without or ())
    archive = f"--archives {shlex.quote(str(out))}#penstock"
    options = f"{archive} --conf spark.executorEnv.PYTHONPATH=penstock"
    if json:
        document = {"file": str(out), **made._asdict(), "options": options}
        typer.echo(msgspec.json.encode(document).decode())
        return
    typer.echo(
        f"{out}: {len(made.packages)} packages for Python {made.python}, {size_text(made.size)}."
    )
    typer.echo(f"spark-submit {options} …")

"""`penstock topics delete`: delete topics of a running broker."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from penstock.cli.common.columns import plural
from penstock.cli.common.confirmation import confirm
from penstock.cli.common.failure import CommandFailed
from penstock.cli.common.text import shown
from penstock.cli.lazy_command import examples
from penstock.cli.monitor.api import API_URL_DEFAULT, Api, ApiCa, ApiUrl
from penstock.limits import HTTP_BODY_BYTES_MAX, HTTP_DELETED_TOPICS_MAX, TOPICS_MAX

__all__ = ["DELETE_EXAMPLES", "delete"]

DELETE_EXAMPLES: Final = examples(
    "penstock topics delete sensors/old",
    "penstock topics delete --prefix junk/ --yes",
)
_SHOWN_MAX: Final = 5


def delete(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Names of topics, no patterns.")
    ] = None,
    *,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="All topics with this prefix.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: ApiUrl = API_URL_DEFAULT,
    ca: ApiCa = None,
) -> None:
    """Delete topics: their names, counters and shares of limits.

    Subscriptions stay. The next message creates the topic again. Messages stay in the log until
    retention removes them; clients get them only if the topic is created again.
    """
    if bool(names) == (prefix is not None):
        raise CommandFailed("nothing to delete", "give names of topics, or --prefix, not both")
    api = Api(url, ca=ca)
    wanted = list(dict.fromkeys(names or ()))
    if prefix is not None:
        pages = api.pages("/api/topics", "topics", {"prefix": prefix}, limit=TOPICS_MAX)
        wanted = [topic["name"] for topic in pages]
    if wanted and not yes:
        some = ", ".join(map(shown, wanted[:_SHOWN_MAX]))
        more = f" and {len(wanted) - _SHOWN_MAX:,} more" if len(wanted) > _SHOWN_MAX else ""
        confirm(f"Delete {some}{more}?")
    count = sum(
        api.post("/api/delete-topics", {"names": some})["topics"] for some in _portions(wanted)
    )
    typer.echo(f"{plural(count, 'topic')} deleted")
    if names and count < len(wanted):
        raise CommandFailed(f"{plural(len(wanted) - count, 'name')} did not exist")


def _portions(names: list[str]) -> Iterator[list[str]]:
    """Yield names in portions that fit one request."""
    portion: list[str] = []
    size = 0
    for name in names:
        length = 6 * len(name) + 3  # of the longest JSON
        if portion and (
            len(portion) == HTTP_DELETED_TOPICS_MAX or size + length > HTTP_BODY_BYTES_MAX // 2
        ):
            yield portion
            portion, size = [], 0
        portion.append(name)
        size += length
    if portion:
        yield portion

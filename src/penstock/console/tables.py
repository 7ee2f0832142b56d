"""Tables of one page of rows, and the buttons for the next page."""

import dataclasses
import html
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui
from nicegui.events import GenericEventArguments

__all__ = ["Column", "Pager", "Table", "message_link"]


Action = Callable[[dict[str, Any]], Awaitable[None]]
"""Acts on a row."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    `link` is the field with the address that the cell leads to. A `wide` column is left out on
    narrow screens, a `narrow` one on wide ones; a `cut` one ends in an ellipsis, but names have
    several lines on narrow screens; one that `wraps` always has. Names are left-aligned and of one
    width. `alarm` is the field that says whether a cell is coloured as a problem.
    """

    field: str
    label: str
    link: str = ""
    wide: bool = False
    cut: bool = False
    is_name: bool = False
    wraps: bool = False
    alarm: str = ""
    narrow: bool = False


class Table:
    """A table; rows are values by field."""

    def __init__(
        self,
        columns: Sequence[Column],
        key: str,
        *,
        empty: str = "Nothing yet.",
        tall: bool = False,
    ) -> None:
        """`tall` is for many rows: they scroll below their titles."""
        self._table = ui.table(
            columns=[_column(each) for each in columns],
            rows=[],
            row_key=key,
            pagination=0,
        )
        self._table.classes("table tall" if tall else "table").props(
            "flat dense hide-bottom hide-pagination"
        )
        self.set_empty(empty)
        for column in columns:
            if column.link or (column.is_name and column.cut):
                self._table.add_slot(f"body-cell-{column.field}", _name_slot(column))
            elif column.alarm:
                self._table.add_slot(f"body-cell-{column.field}", _alarm_slot(column))

    def show(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace all rows."""
        found = [dict(row) for row in rows]
        if found == self._table.rows and found:
            return
        if found:
            self._table.props("hide-bottom")
        else:
            self._table.props(remove="hide-bottom")
        self._table.rows = found

    def set_empty(self, text: str) -> None:
        """Set what a table without rows says."""
        self._table.props(f'no-data-label="{html.escape(text)}"')

    def add_actions(self, actions: Mapping[str, Action]) -> None:
        """Add a column with buttons by label for each row."""
        if not actions:
            return
        self._table.columns = [
            *self._table.columns,
            {
                "name": "act",
                "label": "",
                "field": "act",
                "align": "right",
                "classes": "act",
                "headerClasses": "act",
            },
        ]
        buttons = "".join(
            '<q-btn flat dense no-caps size="13px" padding="0 6px" color="primary" '
            f'label="{label}" :aria-label="\'{label} \' + props.key" '
            f"@click=\"$parent.$emit('act', ['{label}', props.row])\" />"
            for label in actions
        )
        self._table.add_slot("body-cell-act", f'<q-td :props="props">{buttons}</q-td>')

        async def act(event: GenericEventArguments) -> None:
            label, row = event.args
            await actions[label](row)

        self._table.on("act", act)


def _column(column: Column) -> dict[str, Any]:
    classes = " ".join(
        name
        for name, wanted in (
            ("wide", column.wide),
            ("narrow", column.narrow),
            ("cut", column.cut),
            ("name", column.is_name),
            ("wraps", column.wraps),
        )
        if wanted
    )
    return {
        "name": column.field,
        "label": column.label,
        "field": column.field,
        "align": "left" if column.is_name or column.cut or column.wraps else "right",
        "classes": classes,
        "headerClasses": "wide" if column.wide else "narrow" if column.narrow else "",
    }


_NAME = (
    "<template v-for=\"level in String(props.value ?? '').split(/(?<=\\/)/)\">"
    "{{ level }}<wbr></template>"
)
"""A name that has a new line, if it needs one, behind a slash."""


def _name_slot(column: Column) -> str:
    if not column.link:
        return f'<q-td :props="props">{_NAME}</q-td>'
    return (
        f'<q-td :props="props"><a v-if="props.row.{column.link}" :href="props.row.{column.link}">'
        f"{_NAME}</a><span v-else>{_NAME}</span></q-td>"
    )


def _alarm_slot(column: Column) -> str:
    style = "color: var(--bad); font-weight: 600"
    return (
        f"<q-td :props=\"props\" :style=\"props.row.{column.alarm} ? '{style}' : ''\">"
        "{{ props.value }}</q-td>"
    )


class Pager:
    """Buttons for the first and the next page of a list that the API gives page by page."""

    def __init__(self, load: Callable[[Any], Awaitable[Any]]) -> None:
        """`load` shows the page from a position on, None for the first; it returns the next."""
        self._load = load
        self._at: Any = None
        self._next: Any = None
        with ui.element("div").classes("pager"):
            self.note = ui.label("")
            self._first = ui.button("First", on_click=self._to_first)
            self._more = ui.button("Next", on_click=self._to_next)
        for button in (self._first, self._more):
            button.props("flat dense no-caps")
        self._enable()

    async def reload(self) -> None:
        """Show the same page again."""
        self._next = await self._load(self._at)
        self._enable()

    async def _to_first(self) -> None:
        self._at = None
        await self.reload()

    async def restart(self) -> None:
        """Show the first page, of a list that is another one now."""
        await self._to_first()

    async def _to_next(self) -> None:
        self._at = self._next
        await self.reload()

    def _enable(self) -> None:
        self._first.set_enabled(self._at is not None)
        self._more.set_enabled(self._next is not None)
        for button in (self._first, self._more):
            button.set_visibility(self._at is not None or self._next is not None)


def message_link(topic: str) -> str:
    """Return the address of the message browser for a topic."""
    return f"/messages?topic={quote(topic, safe='')}"

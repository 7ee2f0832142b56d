"""SQL: queries over topics, and over the tables of the pipeline where there are some."""

from penstock.console.query_turns import QueryTurns
from penstock.console.sessions import LogIn
from penstock.console.sql_box import SqlBox
from penstock.console.warehouse import Warehouse

__all__ = ["SqlPage"]


class SqlPage:
    """A box for queries; the broker's rules decide which topics can be read."""

    def __init__(
        self, login: LogIn, warehouse: Warehouse | None, turns: QueryTurns, *, pattern: str
    ) -> None:
        SqlBox(login, warehouse, turns, pattern=pattern)

"""Consumer groups: their lag over time and by topic; reset."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.charts import LineChart
from penstock.console.dialogs import attempt, confirm, show_facts
from penstock.console.history import Collector
from penstock.console.sessions import LogIn
from penstock.console.shell import problem_card, show_empty
from penstock.console.tables import Column, Table, message_link
from penstock.console.text import ago_text, count_text

__all__ = ["GroupsPage", "group_row", "lag_text", "redrive_text", "redriven_text"]

_REFRESH_SECONDS: Final = 3.0
_GROUPS_MAX: Final = 200
_LINES_MAX: Final = 7
_COLUMNS: Final = (
    Column("name", "Group", is_name=True, cut=True),
    Column("lag", "Lag", alarm="is_idle"),
    Column("members", "Members", alarm="is_idle"),
    Column("unacknowledged", "Unacknowledged", wide=True),
    Column("dead", "Dead letters", wide=True),
    Column("lost", "Lost", wide=True),
    Column("offset", "Offset", wide=True),
    Column("updated", "Reported", wide=True),
)
_MEMBERS: Final = {"external": "-", "other-node": "other node"}
"""Shown in place of a number of members, by the consumers of a group."""
_MEMBER_COLUMNS: Final = (
    Column("name", "Client", is_name=True, cut=True),
    Column("protocol", "Protocol", is_name=True),
    Column("connection", "Connection", wide=True),
    Column("unacknowledged", "Unacknowledged"),
)
_TOPIC_COLUMNS: Final = (
    Column("group", "Group", is_name=True, cut=True),
    Column("topic", "Topic", link="link", is_name=True, cut=True),
    Column("lag", "Lag"),
)


_COLUMNS_HELP: Final = (
    "Lost: messages that retention removed before the group read them. Reported: when its place in "
    "the log was stored last. A reader such as a Spark query keeps its own place and reports it; "
    "it has no members here."
)
_NO_RIGHT: Final = (
    "{name} may see no group: that needs a rule with the right group, such as "
    'allow = ["group"], topics = ["#"] for all groups.'
)


class GroupsPage:
    """All groups that the principal has the right to, the highest lag first."""

    def __init__(self, login: LogIn, collector: Collector) -> None:
        self._login = login
        self._collector = collector
        self._may_change = login.has_area("groups/#")
        self._chart: LineChart | None = None

    async def start(self) -> None:
        """Show the groups, then keep them up to date; raise ApiRefused or BrokerAway."""
        me = await self._login.api.get("/api/me")
        if me["groups"] == "none":
            problem_card(_NO_RIGHT.format(name=me["name"]))
            return
        self._build(sees_all=me["groups"] == "all")
        await self._load()
        ui.timer(_REFRESH_SECONDS, self._load)

    def _build(self, *, sees_all: bool) -> None:
        if self._login.has_area("rates"):
            with ui.element("section").classes("card"):
                ui.label("Lag over time").classes("heading")
                self._chart = LineChart("Chart: lag of groups")
        which = "" if sees_all else " that you may see"
        with ui.element("section").classes("card"):
            ui.label("Groups").classes("heading")
            self._most = ui.label("").classes("note-line").props('aria-live="polite"')
            self._table = Table(_COLUMNS, "name", empty=f"There is no group{which}.")
            resets = {"Reset": self._open_reset} if self._may_change else {}
            self._table.add_actions({"Members": self._open_members, **resets})
            ui.label(_COLUMNS_HELP).classes("muted")
        with ui.element("section").classes("card"):
            ui.label("Lag by topic").classes("heading")
            self._topics = Table(_TOPIC_COLUMNS, "key", empty=f"No group{which} lags.")
        self._note = ui.label("").classes("muted")

    async def _load(self) -> None:
        try:
            found = (await self._login.api.get("/api/groups", {"topics": 20}))["groups"]
        except (ApiRefused, BrokerAway) as error:
            self._note.set_text(str(error))
            return
        found.sort(key=lambda group: (-group["lag"], group["name"]))
        more = len(found) - _GROUPS_MAX
        self._note.set_text(f"and {more:,} groups with a lower lag" if more > 0 else "")
        shown = found[:_GROUPS_MAX]
        now = time.time()
        self._most.set_text(lag_text(shown))
        self._table.show([group_row(each, now) for each in shown])
        self._topics.show([row for each in shown for row in _topic_rows(each)][:_GROUPS_MAX])
        if self._chart is not None:
            self._collector.adopt(self._login)
            names = [each["name"] for each in shown[:_LINES_MAX]]
            points = list(self._collector.points)
            self._chart.show(
                {name: [(each.time, each.lag.get(name)) for each in points] for name in names}, now
            )

    async def _open_members(self, row: dict[str, Any]) -> None:
        """Show the clients of a group, and let its dead letters be delivered again."""
        name = row["name"]
        try:
            found = await self._login.api.get(f"/api/groups/{quote(name, safe='')}")
        except (ApiRefused, BrokerAway) as error:
            self._note.set_text(str(error))
            return
        with ui.dialog() as dialog, ui.card().classes("card"):
            ui.label(f"Members of {name}").classes("heading")
            Table(_MEMBER_COLUMNS, "connection", empty="No client is in this group.").show(
                found["members"]
            )
            show_facts(
                {
                    "Topics": found["pattern"] or "as the group reports them",
                    "Unacknowledged": f"{found['unacknowledged']:,}",
                    "Dead letters": f"{found['dead']:,}",
                }
            )
            with ui.row():
                if self._may_change and found["dead"]:
                    redrive = ui.button("Redrive", on_click=lambda: self._redrive(found, dialog))
                    redrive.props("no-caps").tooltip("Deliver all dead letters again")
                ui.button("Close", on_click=dialog.close).props("flat no-caps")
        dialog.on("hide", dialog.delete)
        dialog.open()

    async def _redrive(self, group: dict[str, Any], dialog: ui.dialog) -> None:
        name = group["name"]
        if not await confirm(redrive_text(group), "Redrive"):
            return

        async def act() -> str:
            done = await self._login.api.post(f"/api/groups/{quote(name, safe='')}/redrive")
            return redriven_text(name, done)

        if await attempt(act):
            dialog.close()
        await self._load()

    async def _open_reset(self, row: dict[str, Any]) -> None:
        name = row["name"]
        with ui.dialog() as dialog, ui.card().classes("card"):
            ui.label(f"Reset {name}").classes("heading")
            show_empty(
                "Members, and readers that ask the broker for the group's offset, go on there. A "
                "Spark query has a checkpoint of its own: it reports its offset again."
            )
            place = ui.input("Offset, time, earliest, latest or -15m", value=str(row["number"]))
            place.props("outlined dense").classes("whole mono")
            with ui.row():
                ui.button("Reset", on_click=lambda: self._reset(name, place.value, dialog)).props(
                    "no-caps"
                )
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
        dialog.on("hide", dialog.delete)
        dialog.open()

    async def _reset(self, name: str, text: str | None, dialog: ui.dialog) -> None:
        wanted = (text or "").strip()

        async def act() -> str:
            path = f"/api/groups/{quote(name, safe='')}/reset?to={quote(wanted, safe='')}"
            done = await self._login.api.post(path)
            return f"{name} is at offset {done['offset']:,} now."

        if await attempt(act):
            dialog.close()
        await self._load()


def redrive_text(group: Mapping[str, Any]) -> str:
    """Return what a redrive of a group does, as a question."""
    dead = group["dead"]
    which = "Its dead letter is" if dead == 1 else f"All {dead:,} dead letters are"
    text = (
        f"Redrive {group['name']}? {which} delivered to its members again, as if for the first time"
    )
    if group["consumers"] == "none":
        return f"{text}. The group has no member now: nothing is delivered until one joins."
    return f"{text}, and dead again if that fails."


def redriven_text(name: str, done: Mapping[str, Any]) -> str:
    """Return what a redrive of a group has done."""
    text = f"{done['messages']:,} messages of {name} are delivered again."
    if not done["gone"]:
        return text
    return (
        f"{text} {done['gone']:,} are not: the log no longer has them. "
        f"Their dead letters are in the topic dead/{name}."
    )


def lag_text(groups: Sequence[dict[str, Any]]) -> str:
    """Return which group lags most, where and why; groups are sorted by their lag."""
    if not groups:
        return ""
    first = groups[0]
    lag = first["lag"]
    if not lag:
        return "No group lags: each has processed all messages of its topics."
    verb = "message waits" if lag == 1 else "messages wait"
    text = f"{first['name']} lags most: {lag:,} {verb}"
    topics = [each for each in first["topics"] if each["topic"]]
    if topics:
        most = topics[0]["lag"]
        part = "all" if most >= lag else "most of them" if 2 * most > lag else f"{most:,} of them"
        text += f", {part} of {topics[0]['topic']}"
    return f"{text}; {_consumers_text(first)}."


def _consumers_text(group: Mapping[str, Any]) -> str:
    match group["consumers"]:
        case "none":
            return "it has no members"
        case "members":
            count = group["members"]
            return f"it has {count:,} {'member' if count == 1 else 'members'}"
        case "other-node":
            return "its members are at another node"
    return "its reader reports its place itself"


def group_row(group: dict[str, Any], now: float) -> dict[str, Any]:
    """Return the row of a group; `is_idle` says that messages wait and nothing reads them."""
    offset = group["offsets"][0]["offset"] if group["offsets"] else 0
    return {
        "name": group["name"],
        "lag": count_text(group["lag"]),
        "members": _MEMBERS.get(group["consumers"], f"{group['members']:,}"),
        "is_idle": group["consumers"] == "none" and group["lag"] > 0,
        "unacknowledged": count_text(group["unacknowledged"]),
        "dead": count_text(group["dead"]),
        "lost": count_text(group["lost"]),
        "offset": f"{offset:,}",
        "number": offset,
        "updated": ago_text(group["updated"], now),
    }


def _topic_rows(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": f"{group['name']} {each['topic']}",
            "group": group["name"],
            "topic": each["topic"] or "(no topic)",
            "link": message_link(each["topic"]) if each["topic"] else "",
            "lag": count_text(each["lag"]),
        }
        for each in group["topics"]
    ]

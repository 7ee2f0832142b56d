"""Cluster: the nodes of a log on Kafka, their partitions, and how far each follows the others."""

import time
from datetime import datetime
from typing import Any, Final

from nicegui import ui

from penstock.console.api import ApiRefused, BrokerAway
from penstock.console.sessions import LogIn
from penstock.console.tables import Column, Table
from penstock.console.text import ago_text, count_text, duration_text, time_text

__all__ = ["ClusterPage", "silent_nodes"]

_REFRESH_SECONDS: Final = 5.0
_SILENT_SECONDS: Final = 30.0
"""A node reports every ten seconds. One without a report for so long does not run, or not well."""
_NODE_COLUMNS: Final = (
    Column("name", "Node", is_name=True),
    Column("host", "Host", is_name=True, cut=True),
    Column("process", "Process", wide=True),
    Column("started", "Started (UTC)", wide=True),
    Column("horizon", "From offset", wide=True),
    Column("end", "Up to offset"),
    Column("last", "Last message", wide=True),
    Column("reported", "Last report"),
)
_FOLLOWED_COLUMNS: Final = (
    Column("node", "Node", is_name=True),
    Column("partition", "follows node", is_name=True),
    Column("offset", "Next offset"),
    Column("behind", "Messages behind"),
)


class ClusterPage:
    """The nodes as the broker that is asked sees them."""

    def __init__(self, login: LogIn) -> None:
        self._login = login
        self._note = ui.label("").classes("muted note-line trouble").props('aria-live="polite"')
        with ui.element("section").classes("card"):
            ui.label("Nodes").classes("heading")
            self._nodes = Table(_NODE_COLUMNS, "name", empty="No node has written yet.")
        with ui.element("section").classes("card"):
            ui.label("Who follows whom").classes("heading")
            ui.label(
                "Each node delivers the messages of all others to its own clients. Other nodes"
                " report every ten seconds how far they are."
            ).classes("muted note-line")
            self._followed = Table(_FOLLOWED_COLUMNS, "key", empty="There is only one node.")

    async def start(self) -> None:
        """Show all nodes, then keep them up to date."""
        self._show(await self._login.api.get("/api/cluster"))
        ui.timer(_REFRESH_SECONDS, self._refresh)

    async def _refresh(self) -> None:
        try:
            self._show(await self._login.api.get("/api/cluster"))
        except (ApiRefused, BrokerAway) as error:
            self._note.set_text(str(error))

    def _show(self, cluster: dict[str, Any]) -> None:
        now = time.time()
        nodes = cluster["nodes"]
        silent = silent_nodes(nodes, now)
        text = f"{cluster['location']}: this console asks node {cluster['node']}."
        if silent:
            text += f" {silent}"
        self._note.set_text(text)
        self._nodes.show([_node_row(each, cluster["node"], now) for each in nodes])
        self._followed.show(
            [_followed_row(node, each) for node in nodes for each in node["follows"]]
        )


def silent_nodes(nodes: list[dict[str, Any]], now: float) -> str:
    """Return a sentence about nodes that do not report; nothing if all do."""
    silent = []
    for each in nodes:
        if not each["reported"]:
            silent.append(f"node {each['node']} (never)")
            continue
        ago = now - datetime.fromisoformat(each["reported"]).timestamp()
        if ago > _SILENT_SECONDS:
            silent.append(f"node {each['node']} ({duration_text(ago)} ago)")
    return f"Without a report for long: {', '.join(silent)}." if silent else ""


def _node_row(node: dict[str, Any], asked: int, now: float) -> dict[str, Any]:
    name = str(node["node"])
    return {
        "name": f"{name} (asked)" if node["node"] == asked else name,
        "host": node["host"],
        "process": node["process"],
        "started": time_text(node["started"])[:19],
        "horizon": f"{node['horizon']:,}",
        "end": f"{node['end']:,}",
        "last": ago_text(node["last_time"], now),
        "reported": ago_text(node["reported"], now) or "never",
    }


def _followed_row(node: dict[str, Any], followed: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": f"{node['node']}-{followed['partition']}",
        "node": str(node["node"]),
        "partition": str(followed["partition"]),
        "offset": f"{followed['offset']:,}",
        "behind": count_text(followed["behind"]),
    }

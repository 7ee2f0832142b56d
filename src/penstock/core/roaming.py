"""Clients that reconnect to another node: their positions are in a store that all nodes see.

A node writes the positions of a client every few seconds while it is connected, and when it has
disconnected. A client that is still connected to another node is asked for: that node closes the
connection and answers with the exact positions. If it does not answer in time, the last positions
that it has written count; the client may get some messages twice, but misses none.

    node B                       store                            node A
    find ───────────────────────▶ {node A, connected}
    put ────────────────────────▶ {node B, claims} ──────────────▶ it closes the connection
         ◀─────────────────────── {node B, handed over, positions} ◀── put
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from penstock.core.partitions import Position
from penstock.core.resumption import ClientKey, Resumption
from penstock.core.timers import Timer, Timers
from penstock.limits import ROAMING_ARRIVALS_MAX, ROAMING_SECONDS_MAX
from penstock.ports import Clock
from penstock.ports.sessions import KeptSession, SessionStore

__all__ = ["Roaming", "RoamingClient"]

_Then = Callable[[dict[str, Position]], None]


class RoamingClient(Protocol):
    """A connected client that may resume elsewhere."""

    def give_way(self) -> None:
        """Store its positions with `Resumption.keep`, and close the connection."""


class _Arrival(NamedTuple):
    """A client that waits for its positions from another node."""

    then: _Then
    timer: Timer


class Roaming:
    """Looks for the positions of clients on all nodes, and answers other nodes."""

    def __init__(
        self, resumption: Resumption, timers: Timers, clock: Clock, store: SessionStore
    ) -> None:
        self._resumption = resumption
        self._timers = timers
        self._clock = clock
        self._store = store
        self._connected: dict[str, RoamingClient] = {}
        self._arriving: set[str] = set()  # connected ones that have no subscriptions yet
        self._arrivals: dict[str, _Arrival] = {}

    # --- Clients of this node ---------------------------------------------------------------------

    def arrive(
        self, key: ClientKey, client: RoamingClient, kept: dict[str, Position], then: _Then
    ) -> None:
        """Call `then` with the positions of a client that connects.

        `kept` are those of this node; they count if the client was not elsewhere since.
        """
        text = _text(key)
        self._connected[text] = client
        self._arriving.add(text)

        def found(session: KeptSession | None) -> None:
            if self._connected.get(text) is not client:
                return  # it has left
            positions = kept
            if session is not None:
                elsewhere = session.node != self._store.node
                if elsewhere and session.connected:
                    self._ask(text, session, then)
                    return
                is_late = session.until_us and session.until_us < self._clock.now_us()
                if (elsewhere or not kept) and not is_late:
                    positions = dict(session.positions)
            self._settle(text, positions, then)

        self._store.find(text, found)

    def _ask(self, text: str, session: KeptSession, then: _Then) -> None:
        """Ask the node with the client for its positions."""
        older = self._arrivals.pop(text, None)
        if older is not None:
            older.timer.cancel()
        positions: dict[str, Position] = dict(session.positions)
        if len(self._arrivals) >= ROAMING_ARRIVALS_MAX:
            self._settle(text, positions, then)
            return
        timer = self._timers.after(ROAMING_SECONDS_MAX, lambda: self._answered(text, positions))
        self._arrivals[text] = _Arrival(then, timer)
        self._put(text, positions, connected=True, claims=True)

    def _answered(self, text: str, positions: dict[str, Position]) -> None:
        arrival = self._arrivals.pop(text, None)
        if arrival is not None:
            arrival.timer.cancel()
            self._settle(text, positions, arrival.then)

    def _settle(self, text: str, positions: dict[str, Position], then: _Then) -> None:
        self._arriving.discard(text)
        self._put(text, positions, connected=True)
        then(positions)

    def save(self, key: ClientKey, client: RoamingClient, positions: dict[str, Position]) -> None:
        """Write the positions of a client that is connected.

        One whose positions are looked for has none yet: they would replace those that it gets.
        """
        text = _text(key)
        if self._connected.get(text) is client and text not in self._arriving:
            self._put(text, positions, connected=True)

    def leave(self, key: ClientKey, client: RoamingClient, *, kept: bool) -> None:
        """Take note that a client has disconnected, and whether its positions are kept."""
        text = _text(key)
        if self._connected.get(text) is not client:
            return
        del self._connected[text]
        self._arriving.discard(text)
        arrival = self._arrivals.pop(text, None)
        if arrival is not None:
            arrival.timer.cancel()
        if not kept:
            self._store.put(text, None)
            return
        positions = self._resumption.peek(key)
        if positions is not None:
            until_us = self._clock.now_us() + round(self._resumption.seconds_max * 1e6)
            self._put(text, positions, until_us=until_us)

    def _put(
        self,
        text: str,
        positions: Mapping[str, Position],
        *,
        node: int | None = None,
        connected: bool = False,
        claims: bool = False,
        handed_over: bool = False,
        until_us: int = 0,
    ) -> None:
        own = self._store.node
        session = KeptSession(
            node=own if node is None else node,
            writer=own,
            positions={pattern: dict(position) for pattern, position in positions.items()},
            connected=connected,
            claims=claims,
            handed_over=handed_over,
            until_us=until_us,
        )
        self._store.put(text, session)

    # --- Clients of other nodes -------------------------------------------------------------------

    def session_changed(self, text: str, session: KeptSession) -> None:
        """Take what another node has written of a client."""
        if session.handed_over or not session.connected:
            self._answered(text, dict(session.positions))
            return
        key = _key(text)
        if key is None:
            return
        client = self._connected.get(text)
        if client is not None:
            if not session.claims:
                return  # the other node has written it before it knew of this connection
            del self._connected[text]
            self._arriving.discard(text)
            client.give_way()
        positions = self._resumption.drop(key)
        if positions is not None and session.claims:
            self._put(text, positions, node=session.node, connected=True, handed_over=True)


def _text(key: ClientKey) -> str:
    return msgspec.json.encode(key).decode()


def _key(text: str) -> ClientKey | None:
    try:
        key: ClientKey = msgspec.json.decode(text, type=ClientKey)
    except ValueError:
        return None
    return key

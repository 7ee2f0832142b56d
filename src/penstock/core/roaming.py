"""Clients that reconnect to another node: their positions are in a store that all nodes see.

A node writes the positions of a client every few seconds while it is connected, and when it has
disconnected. A client that is still connected to another node is asked for: that node closes the
connection and answers with the exact positions. If it does not answer in time, the last positions
that it has written count; the client may get some messages twice, but misses none.

    node B                       store                            node A
    find ───────────────────────▶ {node A, connected, claim 1}
    put ────────────────────────▶ {node B, claims, claim 2} ─────▶ it closes the connection
         ◀─────────────────────── {node B, handed over, claim 2} ◀── put
    put ────────────────────────▶ {node B, connected, claim 3}

Each move of a client has a higher claim. A node that was suspended may answer an old claim, or
write old positions, after the client has moved on. The store ignores both, and the node that has
the client writes its state again.

The positions in the store never go beyond what is in the log. A node delivers the messages of its
own clients before they are committed; if it ends before that, the next process assigns their
offsets to other messages.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from penstock.core.partitions import Position
from penstock.core.resumption import ClientKey, Resumption
from penstock.core.timers import Timer, Timers
from penstock.limits import (
    ROAMING_ARRIVALS_MAX,
    ROAMING_COMMIT_SECONDS_MAX,
    ROAMING_RENEWAL_SECONDS,
    ROAMING_RENEWALS_MAX,
    ROAMING_SECONDS_MAX,
)
from penstock.ports import Clock
from penstock.ports.sessions import KeptSession, SessionStore

__all__ = ["Roaming", "RoamingClient"]

_Then = Callable[[dict[str, Position]], None]
_COMMIT_LOOK_SECONDS = 0.02
_RENEWAL_LOOK_SECONDS = 1.0


class RoamingClient(Protocol):
    """A connected client that may resume elsewhere."""

    def give_way(self) -> None:
        """Store its positions with `Resumption.keep`, and close the connection."""


class _Arrival(NamedTuple):
    """A client that waits for its positions from another node, and the claim for it."""

    then: _Then
    timer: Timer
    claim: int


class _Written(NamedTuple):
    """What this node has last written of a client, and when."""

    session: KeptSession
    at: float


class Roaming:
    """Looks for the positions of clients on all nodes, and answers other nodes.

    `committed` returns the offset behind the last committed message of this node's partition.
    """

    def __init__(
        self,
        resumption: Resumption,
        timers: Timers,
        clock: Clock,
        store: SessionStore,
        *,
        committed: Callable[[], int],
    ) -> None:
        self._resumption = resumption
        self._timers = timers
        self._clock = clock
        self._store = store
        self._committed = committed
        self._connected: dict[str, RoamingClient] = {}
        self._arriving: set[str] = set()  # connected ones that have no subscriptions yet
        self._looking: dict[str, KeptSession | None] = {}
        """Connected clients that the store is asked for, and the highest claim since."""
        self._arrivals: dict[str, _Arrival] = {}
        self._claims: dict[str, int] = {}  # by connected client
        self._written: dict[str, _Written] = {}  # by client of this node, the oldest first
        self._renewing = False

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
        self._looking[text] = None

        def found(session: KeptSession | None) -> None:
            if self._connected.get(text) is not client:
                return  # it has left
            since = self._looking.pop(text, None)
            decide(session)
            if since is not None and (session is None or since.claim > session.claim):
                self.session_changed(text, since)

        def decide(session: KeptSession | None) -> None:
            positions = kept
            self._claims[text] = 1
            if session is not None:
                self._claims[text] = session.claim + 1
                elsewhere = session.node != self._store.node
                is_late = session.until_us and session.until_us < self._clock.now_us()
                if elsewhere and session.connected and not is_late:
                    self._ask(text, session, then)
                    return
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
        self._arrivals[text] = _Arrival(then, timer, self._claims[text])
        self._put(text, positions, connected=True, claims=True)

    def _answered(self, text: str, positions: dict[str, Position]) -> None:
        arrival = self._arrivals.pop(text, None)
        if arrival is not None:
            arrival.timer.cancel()
            self._claims[text] = arrival.claim + 1  # a later answer does not count
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
        self._looking.pop(text, None)
        arrival = self._arrivals.pop(text, None)
        if arrival is not None:
            arrival.timer.cancel()
        if not kept:
            self._forget(text)
            self._store.put(text, None)
            return
        positions = self._resumption.peek(key)
        if positions is None:
            self._forget(text)
            return
        until_us = self._clock.now_us() + round(self._resumption.seconds_max * 1e6)
        self._put(text, positions, until_us=until_us)
        if self._are_committed(positions):
            return

        def put_again() -> None:
            if text not in self._connected and self._resumption.peek(key) is positions:
                self._put(text, positions, until_us=until_us)

        self._when_committed(positions, put_again)

    def _forget(self, text: str) -> None:
        self._written.pop(text, None)
        self._claims.pop(text, None)

    # --- Writing ----------------------------------------------------------------------------------

    def _put(
        self,
        text: str,
        positions: Mapping[str, Position],
        *,
        connected: bool = False,
        claims: bool = False,
        until_us: int = 0,
    ) -> None:
        """Write the state of a client of this node."""
        own = self._store.node
        session = KeptSession(
            node=own,
            writer=own,
            positions=self._capped(positions),
            connected=connected,
            claims=claims,
            until_us=until_us or self._connected_until_us(),
            claim=self._claims.get(text, 1),
        )
        self._write(text, session)

    def _connected_until_us(self) -> int:
        seconds = max(self._resumption.seconds_max, 2 * ROAMING_RENEWAL_SECONDS)
        return self._clock.now_us() + round(seconds * 1e6)

    def _write(self, text: str, session: KeptSession) -> None:
        self._written.pop(text, None)
        self._written[text] = _Written(session, self._clock.monotonic())
        self._store.put(text, session)
        self._renew_later()

    def _capped(self, positions: Mapping[str, Position]) -> dict[str, dict[int, int]]:
        """Return positions, lowered to the end of the log where they are beyond it."""
        own, end = self._store.node, self._committed()
        return {
            pattern: {
                number: min(offset, end) if number == own else offset
                for number, offset in position.items()
            }
            for pattern, position in positions.items()
        }

    def _are_committed(self, positions: Mapping[str, Position]) -> bool:
        own, end = self._store.node, self._committed()
        return all(position.get(own, 0) <= end for position in positions.values())

    def _when_committed(self, positions: Mapping[str, Position], then: Callable[[], None]) -> None:
        """Call `then` when all messages before the positions are in the log, or when it is late."""
        ends = self._clock.monotonic() + ROAMING_COMMIT_SECONDS_MAX

        def look() -> None:
            if self._are_committed(positions) or self._clock.monotonic() >= ends:
                then()
            else:
                self._timers.after(_COMMIT_LOOK_SECONDS, look)

        look()

    def _renew_later(self) -> None:
        if not self._renewing:
            self._renewing = True
            self._timers.after(_RENEWAL_LOOK_SECONDS, self._renew)

    def _renew(self) -> None:
        """Write states of connected clients again before they expire; forget expired ones."""
        self._renewing = False
        now, now_us = self._clock.monotonic(), self._clock.now_us()
        due: list[str] = []
        for text, written in self._written.items():
            if now < written.at + ROAMING_RENEWAL_SECONDS or len(due) >= ROAMING_RENEWALS_MAX:
                break
            due.append(text)
        for text in due:
            session = self._written.pop(text).session
            if session.connected:
                if text in self._connected and text not in self._arriving:
                    until_us = self._connected_until_us()
                    self._write(text, msgspec.structs.replace(session, until_us=until_us))
            elif session.until_us > now_us:
                self._written[text] = _Written(session, now)
            else:
                self._claims.pop(text, None)
        if self._written:
            self._renew_later()

    # --- Clients of other nodes -------------------------------------------------------------------

    def session_changed(self, text: str, session: KeptSession) -> None:
        """Take what another node has written of a client.

        A node may read states that are long past. So while the store is asked for a client that
        connects, its answer counts, and after it only what was written later.
        """
        if text in self._looking:
            since = self._looking[text]
            if since is None or session.claim >= since.claim:
                self._looking[text] = session
            return
        arrival = self._arrivals.get(text)
        if arrival is not None and (session.handed_over or not session.connected):
            # If the client is disconnected there, it left before its node had read the claim.
            lowest = arrival.claim if session.handed_over else arrival.claim - 1
            if session.claim >= lowest or not session.claim:
                self._answered(text, dict(session.positions))
            return
        own = self._claims.get(text)
        if own is not None and 0 < session.claim < own:
            self._write_again(text)
            return
        if session.handed_over or not session.connected:
            return
        key = _key(text)
        if key is None:
            return
        client = self._connected.get(text)
        if client is not None:
            if not session.claims and session.claim <= (own or 0):
                return  # the other node has written it before it knew of this connection
            del self._connected[text]
            self._arriving.discard(text)
            client.give_way()
        self._forget(text)
        positions = self._resumption.drop(key)
        if positions is not None and session.claims:
            self._when_committed(positions, lambda: self._hand_over(text, session, positions))

    def _write_again(self, text: str) -> None:
        """Write the state of a client of this node again: a node that lags has replaced it."""
        written = self._written.get(text)
        if written is not None:
            self._store.put(text, written.session)

    def _hand_over(self, text: str, claim: KeptSession, positions: Mapping[str, Position]) -> None:
        """Answer a claim, unless the client has moved on because this node was suspended."""

        def found(session: KeptSession | None) -> None:
            if session is None or not session.claims or session.claim != claim.claim:
                return
            answer = msgspec.structs.replace(
                claim,
                writer=self._store.node,
                positions=self._capped(positions),
                claims=False,
                handed_over=True,
            )
            self._store.put(text, answer)

        self._store.find(text, found)


def _text(key: ClientKey) -> str:
    return msgspec.json.encode(key).decode()


def _key(text: str) -> ClientKey | None:
    try:
        key: ClientKey = msgspec.json.decode(text, type=ClientKey)
    except ValueError:
        return None
    return key

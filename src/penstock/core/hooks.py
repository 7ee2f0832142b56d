"""Hooks: middleware clients that see, and may refuse, what clients of any protocol do.

Hooks run in the order of their priorities, lowest number first, then in the order of registration.
A hook sees an event only if the hooks before it let it pass.

Messages that no hook may see stay on the batch path. While there are hooks on messages, scans stop
at the watched topics, by permit tables like those of principals.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from weakref import WeakKeyDictionary

from penstock.core.access import EVERYTHING, Action, Principal, authorize
from penstock.core.hook_calls import (
    REFUSABLE,
    Calls,
    Event,
    EventKind,
    Hook,
    HookChain,
    Middleware,
)
from penstock.core.sessions import Session
from penstock.core.timers import Timer, Timers
from penstock.errors import InvalidHook, NotAllowed
from penstock.limits import (
    HOOK_CALLS_OPEN_MAX,
    HOOK_GRACE_SECONDS,
    HOOK_TIMEOUT_MS_MAX,
    HOOKS_BYTES_MAX,
    HOOKS_MAX,
)
from penstock.middleware import HookStrategy
from penstock.patterns import canonical_pattern, covers
from penstock.ports import Clock
from penstock.protocols import SOURCES, Source

__all__ = ["Event", "EventKind", "Hook", "HookChain", "Hooks", "Middleware"]

_ALL_SOURCES: Final = frozenset(SOURCES.values())
_WITH_HEADERS: Final = frozenset(source for source in _ALL_SOURCES if source.carries.headers)
"""Sources whose messages have headers."""


class Hooks:
    """All hooks of a broker.

    A hook that must consent (strategy WAIT_OR_REFUSE) outlives its connection for `grace_seconds`:
    until it is registered again or unregistered by its principal, what it would judge is refused.
    `required` are patterns of topics whose messages need the consent of some hook.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Clock,
        next_identifier: Callable[[], int],
        *,
        hooks_max: int = HOOKS_MAX,
        bytes_max: int = HOOKS_BYTES_MAX,
        timeout_ms_max: int = HOOK_TIMEOUT_MS_MAX,
        calls_open_max: int = HOOK_CALLS_OPEN_MAX,
    ) -> None:
        self.calls = Calls(timers, clock, next_identifier, open_max=calls_open_max)
        self.grace_seconds = HOOK_GRACE_SECONDS
        self._timers = timers
        self._graces: dict[Hook, Timer] = {}
        self._required: tuple[str, ...] = ()
        self._hooks_max = hooks_max
        self._bytes_max = bytes_max
        self._bytes = 0  # of the names and conditions of all hooks
        self._timeout_ms_max = timeout_ms_max
        self._by_name: dict[str, Hook] = {}
        self._by_session: dict[Session, dict[str, Hook]] = {}
        self._by_kind: dict[EventKind, tuple[Hook, ...]] = dict.fromkeys(EventKind, ())
        self._tables: dict[Source, WeakKeyDictionary[Principal, bytearray]] = {}
        self.watched: frozenset[Source] = frozenset()
        """Sources whose messages a hook may see; they use the permit tables of this class."""
        self.messages_judged = 0
        """Messages that left the batch path for a hook, since the start."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Hook]:
        return iter(tuple(self._by_name.values()))

    # --- Registration -----------------------------------------------------------------------------

    def check(self, hook: Hook) -> None:
        """Raise InvalidHook or NotAllowed if a hook cannot be registered.

        A hook on messages of a topic needs the rights to hook and to subscribe to it. All other
        hooks need both for everything.
        """
        if hook.middleware is None:
            raise AssertionError("a hook without a middleware")
        former = self._by_name.get(hook.name)
        if former is not None and (
            former.middleware is not None or former.principal.name != hook.principal.name
        ):
            raise InvalidHook(hook.name, "the name is taken")
        if former is None and len(self._by_name) >= self._hooks_max:
            raise InvalidHook(hook.name, f"the limit of {self._hooks_max} hooks is reached")
        if self._bytes + _size(hook) > self._bytes_max:
            problem = f"the limit of {self._bytes_max} bytes of names and conditions is reached"
            raise InvalidHook(hook.name, problem)
        if hook.timeout_seconds * 1000 > self._timeout_ms_max:
            raise InvalidHook(hook.name, f"no timeout may be above {self._timeout_ms_max} ms")
        _authorize(hook)

    def register(self, hook: Hook) -> None:
        """Register a hook; raise InvalidHook or NotAllowed as `check` does."""
        self.check(hook)
        former = self._by_name.get(hook.name)
        if former is not None:
            self._remove(former)
        hook.registered = True
        self._by_name[hook.name] = hook
        if hook.middleware is not None:
            self._by_session.setdefault(hook.middleware.session, {})[hook.name] = hook
        self._bytes += _size(hook)
        # Sorting is stable: equal priorities stay in the order of registration.
        hooks = sorted((*self._by_kind[hook.kind], hook), key=lambda each: each.priority)
        self._by_kind[hook.kind] = tuple(hooks)
        if hook.kind is EventKind.PUSH:
            self._update_watched()

    def unregister(self, session: Session, name: str) -> None:
        """Remove a client's hook; raise InvalidHook if it has none of this name.

        Events that await an answer of the hook continue as if it timed out.
        """
        hook = self._by_name.get(name)
        if hook is None or not _owns(session, hook):
            raise InvalidHook(name, "not registered by this client")
        self._remove(hook)
        self.calls.end(hook)

    def closed(self, session: Session) -> None:
        """End the hooks of a client that disconnected, then notify DISCONNECT hooks.

        Hooks that must consent stay without a middleware, for the time of grace.
        """
        mine = list(self._by_session.pop(session, {}).values())
        gone = {hook.middleware for hook in mine if hook.middleware is not None}
        for hook in mine:
            hook.middleware = None
            if self._outlives(hook):
                self._graces[hook] = self._timers.after(
                    self.grace_seconds, functools.partial(self._remove, hook)
                )
            else:
                hook.registered = False
                self._bytes -= _size(hook)
                del self._by_name[hook.name]
        for kind in {hook.kind for hook in mine if not hook.registered}:
            self._by_kind[kind] = tuple(each for each in self._by_kind[kind] if each.registered)
            if kind is EventKind.PUSH:
                self._update_watched()
        for middleware in gone:
            self.calls.leave(middleware)
        for hook in mine:
            self.calls.end(hook)
        self.tell(EventKind.DISCONNECT, session.name, session)

    def _outlives(self, hook: Hook) -> bool:
        return (
            self.grace_seconds > 0
            and hook.strategy is HookStrategy.WAIT_OR_REFUSE
            and hook.kind in REFUSABLE
        )

    def require(self, patterns: Iterable[str]) -> None:
        """Set the patterns of topics whose messages need consent; raise InvalidPattern."""
        required = tuple(patterns)
        for pattern in required:
            canonical_pattern(pattern)
        self._required = required
        self._update_watched()

    def _requires(self, topic: str) -> bool:
        return any(covers(pattern, topic) for pattern in self._required)

    def remove_forbidden(self) -> set[Session]:
        """Remove the hooks that the rules of their clients no longer allow; return the clients.

        Events that await their answers continue as if they timed out.
        """
        forbidden = [hook for hook in self._by_name.values() if not _is_allowed(hook)]
        for hook in forbidden:
            self._remove(hook)
        # Only now: clients that go on may unregister hooks, or leave.
        losers = {hook.middleware.session for hook in forbidden if hook.middleware is not None}
        for hook in forbidden:
            self.calls.end(hook)
        return losers

    def _remove(self, hook: Hook) -> None:
        grace = self._graces.pop(hook, None)
        if grace is not None:
            grace.cancel()
        hook.registered = False
        del self._by_name[hook.name]
        if hook.middleware is not None:
            own = self._by_session[hook.middleware.session]
            del own[hook.name]
            if not own:
                del self._by_session[hook.middleware.session]
        self._bytes -= _size(hook)
        self._by_kind[hook.kind] = tuple(
            each for each in self._by_kind[hook.kind] if each is not hook
        )
        if hook.kind is EventKind.PUSH:
            self._update_watched()

    # --- Events -----------------------------------------------------------------------------------

    def has(self, kind: EventKind) -> bool:
        """Return whether there are hooks of a kind."""
        return bool(self._by_kind[kind])

    def ask(self, event: Event) -> HookChain:
        """Run the hooks of an event; the chain may be settled on return."""
        required = event.kind is EventKind.PUSH and self._requires(event.subject)
        return HookChain(self.calls, iter(self._by_kind[event.kind]), event, required=required)

    def tell(self, kind: EventKind, subject: str, session: Session) -> None:
        """Notify hooks of an event that cannot be refused."""
        if self._by_kind[kind]:
            self.ask(Event(kind, subject, session.name, session.encoding.protocol, session))

    # --- Permit tables ----------------------------------------------------------------------------

    def watch(self, protocol: Source, topic: str) -> bool:
        """Return whether a hook may see messages of `topic` from clients of `protocol`."""
        return protocol in self.watched and (
            self._requires(topic)
            or any(
                hook.watches(topic) and (protocol in _WITH_HEADERS or not hook.headers)
                for hook in self._by_kind[EventKind.PUSH]
            )
        )

    def permits(self, session: Session) -> bytearray:
        """Return the table of topics that a session may publish to and that no hook watches."""
        tables = self._tables[session.encoding.protocol]
        table = tables.get(session.principal)
        if table is None:
            table = tables[session.principal] = bytearray()
        return table

    def permit(self, session: Session, topic: str, identifier: int) -> None:
        """Mark a topic that a session may publish to, unless a hook watches it."""
        protocol = session.encoding.protocol
        if not self.watch(protocol, topic):
            table = self.permits(session)
            if identifier >= len(table):
                table.extend(bytes(identifier + 1 - len(table)))
            table[identifier] = 1

    def _update_watched(self) -> None:
        """Update `watched` and discard the permit tables."""
        pushes = self._by_kind[EventKind.PUSH]
        if self._required:
            self.watched = _ALL_SOURCES
        elif not pushes:
            self.watched = frozenset()
        elif all(hook.headers for hook in pushes):
            self.watched = _WITH_HEADERS
        else:
            self.watched = _ALL_SOURCES
        self.rules_changed()

    def rules_changed(self) -> None:
        """Discard the permit tables, after access rules have changed."""
        self._tables = {protocol: WeakKeyDictionary() for protocol in self.watched}


def _size(hook: Hook) -> int:
    """Return the bytes of a hook's name and conditions."""
    texts = [hook.name, *hook.topics, *(name for name, _ in hook.headers)]
    values = sum(len(value) for _, value in hook.headers if value is not None)
    return sum(len(text.encode()) for text in texts) + values


def _owns(session: Session, hook: Hook) -> bool:
    if hook.middleware is None:
        return hook.principal.name == session.principal.name
    return hook.middleware.session is session


def _is_allowed(hook: Hook) -> bool:
    try:
        _authorize(hook)
    except NotAllowed:
        return False
    return True


def _authorize(hook: Hook) -> None:
    """Raise NotAllowed unless the hook's client may register it."""
    for topic in hook.topics or (EVERYTHING,):
        authorize(hook.principal, Action.HOOK, topic)
        # It sees messages, or which client uses which topic.
        authorize(hook.principal, Action.SUBSCRIBE, topic)

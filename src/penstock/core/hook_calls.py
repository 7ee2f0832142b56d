"""Hooks, the calls they cause, and the inquiries that wait for the answers.

A hook's calls all have the same time to be answered, so the oldest is always the next to be late:
one timer for each hook is enough, and a call that is answered leaves nothing behind.
"""

import enum
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.core.hook_events import REFUSABLE, Event, EventKind
from penstock.core.sessions import Session
from penstock.core.timers import Timer, Timers
from penstock.errors import HookRefused, HookTimeout, PeerError
from penstock.ports import Clock

__all__ = ["Calls", "Hook", "HookChain", "Middleware", "Strategy"]


class Strategy(enum.IntEnum):
    """What the broker does about a middleware's answer; the numbers are LamaMQ's."""

    TELL = 0
    WAIT_OR_REFUSE = 1
    WAIT_OR_GO_ON = 2


class Middleware(Protocol):
    """A client that has hooks."""

    @property
    def session(self) -> Session:
        """The client's session, by which its own doings are told from those of others."""

    def call(self, identifier: int, hook: str, event: Event) -> bool:
        """Send a hook call whose answer will name `identifier`; return False if that cannot be.

        It raises nothing, and calls nobody back before it returns.
        """

    def given_up(self, identifier: int) -> None:
        """Learn that nobody waits for the answer to a call, now or any more."""


class Hook:
    """A middleware's wish to see events of one kind.

    All conditions must hold for a message: `topics` are the topics it must have, each of them, and
    `headers` the headers it must have, with a value or, for None, with any.
    """

    __slots__ = (
        "headers",
        "kind",
        "middleware",
        "name",
        "priority",
        "registered",
        "strategy",
        "timeout_seconds",
        "timer",
        "topics",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        middleware: Middleware,
        *,
        kind: EventKind,
        strategy: Strategy,
        priority: int = 0,
        timeout_ms: int = 0,
        topics: frozenset[str] = frozenset(),
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        self.name = name
        self.middleware = middleware
        self.kind = kind
        self.strategy = strategy
        self.priority = priority
        self.timeout_seconds = timeout_ms / 1000
        self.topics = topics
        self.headers = headers
        self.registered = False
        self.waiting: dict[int, tuple[float, HookChain]] = {}  # by call: its deadline, who asked
        self.timer: Timer | None = None

    def watches(self, topic: str) -> bool:
        """Tell whether it may see messages of a topic."""
        return all(topic == wanted for wanted in self.topics)

    def sees(self, event: Event) -> bool:
        """Tell whether an event of its kind is for it; what its own middleware does never is."""
        if event.session is self.middleware.session:
            return False
        return self.watches(event.subject) and all(
            any(name == header and value in (None, found) for header, found in event.headers)
            for name, value in self.headers
        )


class HookChain:
    """The verdict on one event: hook after hook is asked until one refuses.

    Once `settled`, `error` is the verdict: None lets the event happen. Who gets an chain that is
    not settled yet sets `then`, which is called with the verdict, once.
    """

    __slots__ = ("_calls", "_hooks", "_place", "error", "event", "settled", "then")

    def __init__(self, calls: "Calls", hooks: Iterator[Hook], event: Event) -> None:
        self._calls = calls
        self._hooks = hooks
        self._place: tuple[Hook, int] | None = None  # the call whose answer is waited for
        self.event = event
        self.settled = False
        self.error: PeerError | None = None
        self.then: Callable[[PeerError | None], None] | None = None
        self._go_on()

    def answered(self, hook: Hook, refusal: str | None) -> None:
        """Take a middleware's answer; None lets the event pass."""
        self._place = None
        if refusal is None:
            self._go_on()
        else:
            self._calls.refusals += 1
            self._settle(HookRefused(hook.name, refusal))

    def unanswered(self, hook: Hook) -> None:
        """Do as the hook's strategy says for the case that no answer comes."""
        self._place = None
        if hook.strategy is Strategy.WAIT_OR_REFUSE:
            self._settle(HookTimeout(hook.name))
        else:
            self._go_on()

    def cancel(self) -> None:
        """Ask no more: nobody wants the verdict."""
        self.then = None
        self.settled = True
        if self._place is not None:
            self._calls.give_up(*self._place)
            self._place = None

    def _go_on(self) -> None:
        event = self.event
        for hook in self._hooks:
            if not hook.registered or not hook.sees(event):
                continue
            if hook.strategy is Strategy.TELL or event.kind not in REFUSABLE:
                self._calls.tell(hook, event)
                continue
            identifier = self._calls.ask(hook, self)
            if identifier is not None:
                self._place = hook, identifier
                return
            if hook.strategy is Strategy.WAIT_OR_REFUSE:
                self._settle(HookTimeout(hook.name))
                return
        self._settle(None)

    def _settle(self, error: PeerError | None) -> None:
        self.settled = True
        self.error = error
        then, self.then = self.then, None
        if then is not None:
            then(error)


class Calls:
    """All calls to middleware: made, answered, and given up in time."""

    def __init__(self, timers: Timers, clock: Clock, next_identifier: Callable[[], int]) -> None:
        self._timers = timers
        self._clock = clock
        self._next_identifier = next_identifier
        self._hooks: dict[int, Hook] = {}  # by call, while it is waited for
        self.made = 0
        self.refusals = 0
        self.unanswered = 0

    def tell(self, hook: Hook, event: Event) -> None:
        """Make a call whose answer does not matter."""
        identifier = self._next_identifier()
        if hook.middleware.call(identifier, hook.name, event):
            self.made += 1
            hook.middleware.given_up(identifier)

    def ask(self, hook: Hook, chain: HookChain) -> int | None:
        """Make a call whose answer is waited for; return None if it cannot be made."""
        identifier = self._next_identifier()
        if not hook.middleware.call(identifier, hook.name, chain.event):
            self.unanswered += 1
            return None
        self.made += 1
        self._hooks[identifier] = hook
        hook.waiting[identifier] = self._clock.monotonic() + hook.timeout_seconds, chain
        self._wind(hook)
        return identifier

    def answered(self, identifier: int, refusal: str | None) -> None:
        """Take an answer, None if it lets the event pass; one that comes late does nothing."""
        hook = self._hooks.pop(identifier, None)
        if hook is not None:
            _, chain = hook.waiting.pop(identifier)
            chain.answered(hook, refusal)

    def give_up(self, hook: Hook, identifier: int) -> None:
        """Wait no more for the answer to a call."""
        del self._hooks[identifier], hook.waiting[identifier]
        hook.middleware.given_up(identifier)

    def end(self, hook: Hook) -> None:
        """Give up all calls of a hook that is gone."""
        if hook.timer is not None:
            hook.timer.cancel()
            hook.timer = None
        self._leave_unanswered(hook, list(hook.waiting))

    def _wind(self, hook: Hook) -> None:
        """Have the timer run for the oldest call."""
        if hook.timer is None and hook.waiting:
            deadline, _ = next(iter(hook.waiting.values()))
            seconds = deadline - self._clock.monotonic()
            hook.timer = self._timers.after(seconds, lambda: self._late(hook))

    def _late(self, hook: Hook) -> None:
        hook.timer = None
        now = self._clock.monotonic()
        late = []
        for identifier, (deadline, _) in hook.waiting.items():
            if deadline > now:
                break
            late.append(identifier)
        self._leave_unanswered(hook, late)
        if hook.registered:
            self._wind(hook)

    def _leave_unanswered(self, hook: Hook, identifiers: list[int]) -> None:
        for identifier in identifiers:
            if identifier in hook.waiting:  # the one before may have had it cancelled
                _, chain = hook.waiting[identifier]
                self.give_up(hook, identifier)
                self.unanswered += 1
                chain.unanswered(hook)

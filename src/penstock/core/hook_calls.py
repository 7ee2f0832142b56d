"""Events, hooks, the calls to them, and the chain of hooks that runs for each event.

All calls of a hook have the same timeout, so the oldest call times out first and one timer for each
hook is enough.
"""

import dataclasses
import enum
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Final
from typing import Protocol as Port

from penstock.core.histogram import Histogram
from penstock.core.sessions import Session
from penstock.core.timers import Timer, Timers
from penstock.errors import HookRefused, HookTimeout, MiddlewareMissing, PeerError
from penstock.limits import HOOK_CALLS_OPEN_MAX, HOOK_TIMEOUT_MS_DEFAULT
from penstock.middleware import HookStrategy
from penstock.ports import Clock
from penstock.protocols import Source

__all__ = [
    "REFUSABLE",
    "Calls",
    "Event",
    "EventKind",
    "Hook",
    "HookChain",
    "HookFigures",
    "Middleware",
]


class EventKind(enum.StrEnum):
    """The kinds of events."""

    CONNECT = "connect"
    DISCONNECT = "disconnect"
    PUSH = "push"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    REGISTER = "register"
    UNREGISTER = "unregister"


HOOK_BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the histogram's buckets."""
REFUSABLE: Final = frozenset(
    {EventKind.CONNECT, EventKind.PUSH, EventKind.SUBSCRIBE, EventKind.REGISTER}
)
"""Events that happen only if no hook refuses. Hooks are notified of the others afterwards."""


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An action of a client, in any protocol.

    `subject` is the topic of a message, the pattern of a subscription, the name of a hook, or else
    the client's name. `principal` is the name of the client's principal, "" if it has none.
    `session` is None while the client is connecting. The last four fields
    belong to messages; `created_at` is in seconds since the epoch, None if the protocol has no
    such time.
    """

    kind: EventKind
    subject: str
    client: str
    protocol: Source
    session: Session | None = None
    principal: str = ""
    headers: tuple[tuple[str, bytes], ...] = ()
    value: bytes = b""
    value_is_text: bool = False
    created_at: int | None = None


class Middleware(Port):
    """A client that has hooks."""

    @property
    def session(self) -> Session:
        """The client's session; hooks do not see events of their own client."""

    def call(self, identifier: int, hook: str, event: Event) -> bool:
        """Send a hook call whose answer will carry `identifier`; return False if it cannot be sent.

        Do not raise, and do not process an answer before returning.
        """

    def given_up(self, identifier: int) -> None:
        """Handle the end of a call whose answer is not awaited, or not any longer."""


class HookFigures:
    """Calls of one hook since it was registered, and how long its answers took."""

    __slots__ = ("made", "refusals", "times", "unanswered")

    def __init__(self) -> None:
        self.made = 0
        self.refusals = 0
        self.unanswered = 0
        self.times = Histogram(HOOK_BOUNDS_SECONDS)


class Hook:
    """A middleware's registration for events of one kind.

    A message must meet all conditions: its topic must equal each of `topics`, and it must have each
    of `headers`, with that value, or with any value for None. A `timeout_ms` of 0 is the default.

    A hook that must consent outlives its connection for a while: then it has no `middleware`, and
    refuses what it would judge, except that its own client connects again.
    """

    __slots__ = (
        "client",
        "figures",
        "headers",
        "kind",
        "middleware",
        "name",
        "principal",
        "priority",
        "registered",
        "strategy",
        "timeout_seconds",
        "timer",
        "topics",
        "waiting",
    )

    middleware: Middleware | None

    def __init__(
        self,
        name: str,
        middleware: Middleware,
        *,
        kind: EventKind,
        strategy: HookStrategy,
        priority: int = 0,
        timeout_ms: int = 0,
        topics: frozenset[str] = frozenset(),
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        self.name = name
        self.middleware = middleware
        self.client = middleware.session.name
        self.principal = middleware.session.principal
        self.kind = kind
        self.strategy = strategy
        self.priority = priority
        self.timeout_seconds = (timeout_ms or HOOK_TIMEOUT_MS_DEFAULT) / 1000
        self.topics = topics
        self.headers = headers
        self.registered = False
        self.figures = HookFigures()
        self.waiting: OrderedDict[int, tuple[float, HookChain]] = OrderedDict()
        """By call: deadline and chain, the oldest first."""
        self.timer: Timer | None = None

    def watches(self, topic: str) -> bool:
        """Return whether it may see messages of a topic."""
        return all(topic == wanted for wanted in self.topics)

    def sees(self, event: Event) -> bool:
        """Return whether it sees an event of its kind; never one of its own middleware."""
        if self.middleware is None:
            owner = self.client, self.principal.name
            if event.session is None and (event.client, event.principal) == owner:
                return False
        elif event.session is self.middleware.session:
            return False
        return self.watches(event.subject) and all(
            any(name == header and value in (None, found) for header, found in event.headers)
            for name, value in self.headers
        )


class HookChain:
    """Runs the hooks of one event in order, until one refuses.

    Once `settled`, `error` is the result: None lets the event happen. If a chain is not settled
    yet, the caller sets `then`, which is called once with the result. If consent is `required`, at
    least one hook must give it.
    """

    __slots__ = (
        "_calls",
        "_hooks",
        "_lacks_consent",
        "_pending_call",
        "_queued_at",
        "error",
        "event",
        "settled",
        "then",
    )

    def __init__(
        self, calls: "Calls", hooks: Iterator[Hook], event: Event, *, required: bool = False
    ) -> None:
        self._calls = calls
        self._hooks = hooks
        self._lacks_consent = required
        self._pending_call: tuple[Hook, int] | None = None  # its answer is awaited
        self._queued_at: Hook | None = None  # its middleware has too many open calls
        self.event = event
        self.settled = False
        self.error: PeerError | None = None
        self.then: Callable[[PeerError | None], None] | None = None
        self._run()

    def answered(self, hook: Hook, refusal: str | None) -> None:
        """Process an answer: None lets the event pass, a text refuses it."""
        self._pending_call = None
        if refusal is None:
            self._lacks_consent = False
            self._run()
        else:
            self._calls.refusals += 1
            hook.figures.refusals += 1
            self._settle(HookRefused(hook.name, refusal))

    def unanswered(self, hook: Hook) -> None:
        """Refuse or continue, as the hook's strategy says, if no answer comes."""
        self._pending_call = self._queued_at = None
        if hook.strategy is HookStrategy.WAIT_OR_REFUSE:
            self._settle(HookTimeout(hook.name))
        else:
            self._run()

    def unqueued(self, hook: Hook) -> None:
        """Make the call that had to wait for others to be answered."""
        self._queued_at = None
        if not hook.registered:
            self.unanswered(hook)
        elif self._ask(hook):
            self._run()

    def cancel(self) -> None:
        """Stop the chain: its result is no longer needed."""
        self.then = None
        self.settled = True
        if self._pending_call is not None:
            self._calls.give_up(*self._pending_call)
            self._pending_call = None
        if self._queued_at is not None:
            self._calls.unqueue(self._queued_at, self)
            self._queued_at = None

    def _run(self) -> None:
        event = self.event
        for hook in self._hooks:
            if not hook.registered or not hook.sees(event):
                continue
            if hook.strategy is HookStrategy.TELL or event.kind not in REFUSABLE:
                self._calls.tell(hook, event)
            elif not self._ask(hook):
                return
        self._settle(MiddlewareMissing(event.subject) if self._lacks_consent else None)

    def _ask(self, hook: Hook) -> bool:
        """Call a hook; return whether the next one may be called at once."""
        if self._calls.is_full(hook):
            self._queued_at = hook
            self._calls.queue(hook, self)
            return False
        identifier = self._calls.ask(hook, self)
        if identifier is not None:
            self._pending_call = hook, identifier
            return False
        if hook.strategy is HookStrategy.WAIT_OR_REFUSE:
            self._settle(HookTimeout(hook.name))
            return False
        return True

    def _settle(self, error: PeerError | None) -> None:
        self.settled = True
        self.error = error
        then, self.then = self.then, None
        if then is not None:
            then(error)


class Calls:
    """All calls to middleware, with their answers and timeouts.

    A middleware has at most `open_max` open calls. Further events wait until one is answered or
    times out; hooks that need not consent are not told.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Clock,
        next_identifier: Callable[[], int],
        *,
        open_max: int = HOOK_CALLS_OPEN_MAX,
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._next_identifier = next_identifier
        self._open_max = open_max
        self._hooks: dict[int, Hook] = {}  # by call, while its answer is awaited
        self._open: Counter[Middleware] = Counter()
        self._queues: dict[Middleware, OrderedDict[HookChain, Hook]] = {}
        self.made = 0
        self.refusals = 0
        self.unanswered = 0
        self.untold = 0
        self.times = Histogram(HOOK_BOUNDS_SECONDS)
        """How long answers took; calls without an answer are not in it."""

    def __len__(self) -> int:
        return len(self._hooks) + len(self._queues)

    def is_full(self, hook: Hook) -> bool:
        """Return whether the middleware of a hook has as many open calls as it may have."""
        return hook.middleware is not None and self._open[hook.middleware] >= self._open_max

    def queue(self, hook: Hook, chain: HookChain) -> None:
        """Let a chain wait until the middleware of a hook has fewer open calls."""
        if hook.middleware is not None:
            self._queues.setdefault(hook.middleware, OrderedDict())[chain] = hook

    def unqueue(self, hook: Hook, chain: HookChain) -> None:
        """Let a chain wait no longer: its event is not of interest any more."""
        if hook.middleware is not None:
            queue = self._queues.get(hook.middleware, OrderedDict())
            queue.pop(chain, None)
            if not queue:
                self._queues.pop(hook.middleware, None)

    def leave(self, middleware: Middleware) -> None:
        """Forget a middleware that disconnected; events that wait for its calls are unanswered."""
        self._open.pop(middleware, None)
        for chain, hook in self._queues.pop(middleware, {}).items():
            self._count_unanswered(hook)
            chain.unanswered(hook)

    def _count_unanswered(self, hook: Hook) -> None:
        self.unanswered += 1
        hook.figures.unanswered += 1

    def _closed(self, middleware: Middleware) -> None:
        """Count the end of a call, and make the next one that waits for it."""
        self._open[middleware] -= 1
        if not self._open[middleware]:
            del self._open[middleware]
        queue = self._queues.get(middleware)
        if queue:
            chain, hook = queue.popitem(last=False)
            if not queue:
                del self._queues[middleware]
            chain.unqueued(hook)

    def tell(self, hook: Hook, event: Event) -> None:
        """Make a call without awaiting an answer, unless too many calls are open."""
        middleware = hook.middleware
        if middleware is None or self.is_full(hook):
            self.untold += 1
            return
        identifier = self._next_identifier()
        if middleware.call(identifier, hook.name, event):
            self.made += 1
            hook.figures.made += 1
            middleware.given_up(identifier)

    def ask(self, hook: Hook, chain: HookChain) -> int | None:
        """Make a call and await its answer; return its identifier, None if it cannot be made."""
        middleware = hook.middleware
        identifier = self._next_identifier()
        if middleware is None or not middleware.call(identifier, hook.name, chain.event):
            self._count_unanswered(hook)
            return None
        self.made += 1
        hook.figures.made += 1
        self._open[middleware] += 1
        self._hooks[identifier] = hook
        hook.waiting[identifier] = self._clock.monotonic() + hook.timeout_seconds, chain
        self._start_timer(hook)
        return identifier

    def answered(self, identifier: int, refusal: str | None) -> None:
        """Process an answer, None if it lets the event pass; ignore a late one."""
        hook = self._hooks.pop(identifier, None)
        if hook is not None:
            deadline, chain = hook.waiting.pop(identifier)
            called_at = deadline - hook.timeout_seconds
            seconds = max(0.0, self._clock.monotonic() - called_at)
            for times in (self.times, hook.figures.times):
                times.add(seconds)
            chain.answered(hook, refusal)
            if hook.middleware is not None:
                self._closed(hook.middleware)

    def give_up(self, hook: Hook, identifier: int) -> None:
        """Stop awaiting the answer to a call."""
        del self._hooks[identifier], hook.waiting[identifier]
        if hook.middleware is not None:
            hook.middleware.given_up(identifier)
            self._closed(hook.middleware)

    def end(self, hook: Hook) -> None:
        """End all calls of a hook, also those that wait, as unanswered."""
        if hook.timer is not None:
            hook.timer.cancel()
            hook.timer = None
        if hook.middleware is not None:
            waiting = self._queues.get(hook.middleware, OrderedDict())
            for chain in [chain for chain, wanted in waiting.items() if wanted is hook]:
                if chain in waiting:
                    self.unqueue(hook, chain)
                    self._count_unanswered(hook)
                    chain.unanswered(hook)
        self._leave_unanswered(hook, list(hook.waiting))

    def _start_timer(self, hook: Hook) -> None:
        """Start the timer of the oldest call."""
        if hook.timer is None and hook.waiting:
            deadline, _ = next(iter(hook.waiting.values()))
            seconds = deadline - self._clock.monotonic()
            hook.timer = self._timers.after(seconds, lambda: self._expire(hook))

    def _expire(self, hook: Hook) -> None:
        hook.timer = None
        now = self._clock.monotonic()
        late = []
        for identifier, (deadline, _) in hook.waiting.items():
            if deadline > now:
                break
            late.append(identifier)
        self._leave_unanswered(hook, late)
        if hook.registered:
            self._start_timer(hook)

    def _leave_unanswered(self, hook: Hook, identifiers: list[int]) -> None:
        for identifier in identifiers:
            if identifier in hook.waiting:  # ending the previous call may have cancelled it
                _, chain = hook.waiting[identifier]
                self.give_up(hook, identifier)
                self._count_unanswered(hook)
                chain.unanswered(hook)

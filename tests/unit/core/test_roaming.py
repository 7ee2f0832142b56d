"""A client is on one node at a time, and goes on where it stood on the one before."""

from collections.abc import Callable

import msgspec

from penstock.core.access import ANYONE
from penstock.core.partitions import Position
from penstock.core.resumption import ClientKey, Resumption
from penstock.core.roaming import Roaming
from penstock.core.timers import Timers
from penstock.limits import (
    ROAMING_COMMIT_SECONDS_MAX,
    ROAMING_RENEWAL_SECONDS,
    ROAMING_SECONDS_MAX,
)
from penstock.ports import KeptSession
from tests.support.fakes import FakeClock
from tests.unit.core.test_resumption import session

KEY: ClientKey = ANYONE.name, "192.0.2.1", "panel"


class Cluster:
    """A store that all nodes see, and the clock of all."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kept: dict[str, KeptSession] = {}
        self.nodes: list[Node] = []
        self.untold: list[tuple[str, KeptSession]] = []

    def tell(self) -> None:
        """Let nodes read what others have written."""
        while self.untold:
            key, kept = self.untold.pop(0)
            for node in self.nodes:
                if node.number != kept.writer and node.works:
                    node.roaming.session_changed(key, kept)


class Node:
    """One node: a `ports.SessionStore`, and a client that is connected to it."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.node = self.number = number
        self.works = True
        self.unanswered: list[Callable[[], None]] | None = None
        """Answers of a store that takes its time, if it does."""
        self.timers = Timers(cluster.clock)
        self.resumption = Resumption(self.timers)
        self.committed = 1000
        """The end of the partition of this node in the log."""
        self.roaming = Roaming(
            self.resumption, self.timers, cluster.clock, self, committed=lambda: self.committed
        )
        self.positions: dict[str, Position] | None = None
        self.gave_way = 0
        cluster.nodes.append(self)

    def find(self, key: str, then: Callable[[KeptSession | None], None]) -> None:
        if self.unanswered is None:
            then(self.cluster.kept.get(key))
        else:
            self.unanswered.append(lambda: then(self.cluster.kept.get(key)))

    def put(self, key: str, session: KeptSession | None) -> None:
        if session is None:
            self.cluster.kept.pop(key, None)
        else:
            kept = self.cluster.kept.get(key)
            if kept is None or session.claim >= kept.claim:
                self.cluster.kept[key] = session
            self.cluster.untold.append((key, session))

    def arrive(self) -> None:
        self.roaming.arrive(KEY, self, {}, self._arrived)
        self.cluster.tell()

    def _arrived(self, positions: dict[str, Position]) -> None:
        self.positions = positions

    def give_way(self) -> None:
        self.gave_way += 1
        self.keep(9)

    def keep(self, offset: int) -> None:
        self.resumption.keep(session("panel", "x"), {"x": {0: offset}})

    def leave(self, offset: int) -> None:
        self.keep(offset)
        self.roaming.leave(KEY, self, kept=True)
        self.cluster.tell()


def two() -> tuple[Cluster, Node, Node]:
    cluster = Cluster()
    return cluster, Node(cluster, 0), Node(cluster, 1)


def test_a_client_that_left_resumes_elsewhere_and_is_forgotten_where_it_was() -> None:
    _, a, b = two()
    a.arrive()
    assert a.positions == {}
    a.leave(7)
    b.arrive()
    assert b.positions == {"x": {0: 7}}
    assert len(a.resumption) == 0


def test_a_client_that_is_connected_elsewhere_is_given_up_there() -> None:
    _, a, b = two()
    a.arrive()
    b.arrive()
    assert a.gave_way == 1
    assert b.positions == {"x": {0: 9}}
    a.roaming.leave(KEY, a, kept=False)  # the connection is closed now
    a.positions = None
    a.arrive()
    assert (a.positions, b.gave_way) == ({"x": {0: 9}}, 1)


def test_a_node_that_is_gone_is_not_waited_for_longer_than_needed() -> None:
    cluster, a, b = two()
    a.arrive()
    a.roaming.save(KEY, a, {"x": {0: 4}})
    cluster.tell()
    a.works = False
    b.arrive()
    assert b.positions is None
    cluster.clock.seconds += ROAMING_SECONDS_MAX + 0.1
    b.timers.run_due()
    assert b.positions == {"x": {0: 4}}, "what it has saved last"


def test_claims_of_before_end_no_connection_whose_positions_are_looked_for() -> None:
    """The node lags: it reads what the other one wrote only when the client is back."""
    cluster, a, b = two()
    a.arrive()
    b.roaming.arrive(KEY, b, {}, b._arrived)
    cluster.clock.seconds += ROAMING_SECONDS_MAX + 0.1
    b.timers.run_due()
    b.keep(12)
    b.roaming.leave(KEY, b, kept=True)
    a.positions, a.unanswered = None, []
    a.roaming.arrive(KEY, a, {}, a._arrived)
    cluster.tell()
    assert a.gave_way == 0
    (answer,) = a.unanswered
    answer()
    assert a.positions == {"x": {0: 12}}
    cluster.tell()
    assert cluster.kept[next(iter(cluster.kept))].node == a.node


def test_a_claim_that_comes_while_positions_are_looked_for_counts_afterwards() -> None:
    cluster, a, b = two()
    a.arrive()
    a.positions, a.unanswered = None, []
    a.roaming.arrive(KEY, a, {"x": {0: 5}}, a._arrived)
    (answer,) = a.unanswered
    before = dict(cluster.kept)
    b.arrive()
    assert (a.positions, a.gave_way) == (None, 0)
    cluster.kept = before  # it was read before the claim
    answer()
    assert a.gave_way == 1


def test_positions_that_cross_a_move_end_no_connection() -> None:
    cluster, a, b = two()
    a.arrive()
    a.leave(7)
    b.arrive()
    text = next(iter(cluster.kept))
    late = KeptSession(node=0, writer=0, positions={}, connected=True)
    b.roaming.session_changed(text, late)
    assert b.gave_way == 0


def test_a_client_that_says_goodbye_is_forgotten_everywhere() -> None:
    cluster, a, b = two()
    a.arrive()
    a.roaming.leave(KEY, a, kept=False)
    assert not cluster.kept
    b.arrive()
    assert b.positions == {}


def test_positions_are_kept_for_a_while() -> None:
    cluster, a, b = two()
    a.arrive()
    a.leave(7)
    cluster.clock.seconds += a.resumption.seconds_max + 1
    b.arrive()
    assert b.positions == {}


def test_a_client_whose_positions_are_still_looked_for_writes_none() -> None:
    """It has no subscriptions yet: without them it would get nothing, here and elsewhere."""
    _, a, b = two()
    a.arrive()
    a.leave(7)
    b.unanswered = []
    b.arrive()
    b.roaming.save(KEY, b, {})
    (answer,) = b.unanswered
    answer()
    assert b.positions == {"x": {0: 7}}
    b.roaming.save(KEY, b, {"x": {0: 8}})
    assert b.cluster.kept[next(iter(b.cluster.kept))].positions == {"x": {0: 8}}


def test_a_client_that_leaves_while_its_positions_are_looked_for_keeps_them() -> None:
    cluster, a, b = two()
    a.arrive()
    a.leave(7)
    b.unanswered = []
    b.arrive()
    b.roaming.leave(KEY, b, kept=True)
    (answer,) = b.unanswered
    answer()
    assert b.positions is None, "nobody is there"
    b.unanswered = None
    b.arrive()
    assert b.positions == {"x": {0: 7}}
    assert len(cluster.kept) == 1


def kept(cluster: Cluster) -> KeptSession:
    (found,) = cluster.kept.values()
    return found


def run(node: Node, seconds: float) -> None:
    """Let time pass, in small steps."""
    for _ in range(round(seconds / 0.01)):
        node.cluster.clock.seconds += 0.01
        node.timers.run_due()


def test_a_node_that_stood_still_changes_nothing_of_a_client_that_has_moved_on() -> None:
    cluster, a, b = two()
    c = Node(cluster, 2)
    a.arrive()
    a.roaming.save(KEY, a, {"x": {1: 4}})
    cluster.tell()
    a.works = False
    b.arrive()
    claim = kept(cluster)
    assert claim.claims
    run(b, ROAMING_SECONDS_MAX + 0.1)
    assert b.positions == {"x": {1: 4}}
    b.roaming.save(KEY, b, {"x": {1: 500}})
    cluster.tell()
    a.works = True
    text = next(iter(cluster.kept))
    a.roaming.save(KEY, a, {"x": {1: 5}})  # its timer was due
    cluster.tell()
    assert kept(cluster).positions == {"x": {1: 500}}
    a.roaming.session_changed(text, claim)  # it reads on
    cluster.tell()
    assert a.gave_way == 1
    assert kept(cluster).positions == {"x": {1: 500}}
    b.works = False
    c.arrive()
    run(c, ROAMING_SECONDS_MAX + 0.1)
    assert c.positions == {"x": {1: 500}}


def test_what_a_late_node_has_written_is_written_again() -> None:
    """A node that starts later reads only the last state of a client."""
    cluster, a, b = two()
    a.arrive()
    late = kept(cluster)
    a.works = False
    b.arrive()
    run(b, ROAMING_SECONDS_MAX + 0.1)
    b.roaming.save(KEY, b, {"x": {1: 500}})
    cluster.tell()
    text = next(iter(cluster.kept))
    for each in (late, msgspec.structs.replace(late, connected=False)):
        b.roaming.session_changed(text, each)
        assert cluster.untold.pop() == (text, kept(cluster))
    assert b.gave_way == 0
    b.leave(501)
    b.roaming.session_changed(text, late)
    assert cluster.untold.pop() == (text, kept(cluster))


def test_a_connection_that_a_node_still_has_ends_when_the_client_has_another_one() -> None:
    _, a, b = two()
    a.arrive()
    a.works = False
    b.arrive()
    run(b, ROAMING_SECONDS_MAX + 0.1)
    a.works = True
    b.roaming.save(KEY, b, {"x": {1: 500}})  # the claim was compacted meanwhile
    b.cluster.untold = b.cluster.untold[-1:]
    b.cluster.tell()
    assert a.gave_way == 1


def test_positions_that_others_see_are_not_beyond_the_log() -> None:
    cluster, a, _ = two()
    a.committed = 3
    a.arrive()
    a.roaming.save(KEY, a, {"x": {0: 4, 1: 9}, "y": {0: 2}})
    assert kept(cluster).positions == {"x": {0: 3, 1: 9}, "y": {0: 2}}
    a.leave(7)
    assert kept(cluster).positions == {"x": {0: 3}}
    a.committed = 7
    run(a, 0.1)
    assert kept(cluster).positions == {"x": {0: 7}}, "its client got the messages"


def test_a_client_is_handed_over_when_its_messages_are_in_the_log_but_not_too_late() -> None:
    for ends, expected in ((9, 9), (4, 4)):
        cluster, a, b = two()
        a.committed = 4
        a.arrive()
        b.arrive()
        assert a.gave_way == 1
        assert b.positions is None
        a.committed = ends
        run(a, ROAMING_COMMIT_SECONDS_MAX + 0.1 if ends == 4 else 0.1)
        cluster.tell()
        assert b.positions == {"x": {0: expected}}


def test_a_connected_client_does_not_expire() -> None:
    cluster, a, _ = two()
    a.arrive()
    for _ in range(10):
        run(a, ROAMING_RENEWAL_SECONDS)
        assert kept(cluster).until_us > cluster.clock.now_us()
    a.leave(3)
    run(a, a.resumption.seconds_max + ROAMING_RENEWAL_SECONDS + 2)
    assert kept(cluster).until_us < cluster.clock.now_us()
    assert not a.roaming._written
    assert not a.roaming._claims


def test_a_client_of_a_node_that_ended_long_ago_is_forgotten() -> None:
    cluster, a, b = two()
    a.arrive()
    a.roaming.save(KEY, a, {"x": {1: 4}})
    a.works = False
    cluster.clock.seconds += a.resumption.seconds_max + 1
    b.arrive()
    assert b.positions == {}

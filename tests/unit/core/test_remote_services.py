"""Which nodes serve a path, and what other nodes are told."""

import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.core.remote_services import RemoteServices
from penstock.core.requests import Requests, node_target
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.limits import SERVICE_SHARE_SECONDS
from penstock.ports.services import KnownService, ServedPath
from tests.support.fakes import FakeClock


class Store:
    """A `ports.ServiceStore` that notes what is written."""

    def __init__(self, *known: KnownService) -> None:
        self._known = known
        self.running = {1: "a", 2: "b"}
        self.written: list[tuple[str, int, int]] = []
        self.failed: list[Callable[[], None]] = []
        self.is_full = False

    def known(self) -> Iterator[KnownService]:
        return iter(self._known)

    def put(self, name: str, *, servers: int, subscribers: int, failed: Callable[[], None]) -> None:
        if self.is_full:
            raise OSError("no room")
        self.written.append((name, servers, subscribers))
        self.failed.append(failed)

    def is_running(self, node: int, process: str) -> bool:
        return self.running.get(node) == process


class Node:
    """A node with a store, and its clock."""

    def __init__(self, *known: KnownService) -> None:
        self.clock = FakeClock()
        self.timers = Timers(self.clock)
        self.requests = Requests(self.timers, Slices(self.timers, self.clock), self.clock)
        self.store = Store(*known)
        self.services = RemoteServices(self.requests, self.timers)
        self.services.share(self.store)

    def later(self) -> list[tuple[str, int, int]]:
        """Let the time pass in which changes are collected; return what was written."""
        self.clock.seconds += SERVICE_SHARE_SECONDS
        self.timers.run_due()
        written, self.store.written = self.store.written, []
        return written


def bytes_of(services: RemoteServices) -> int:
    """The memory of all that a node stores of its own services."""
    return sum(sys.getsizeof(each) for each in vars(services).values() if isinstance(each, dict))


def known(node: int, name: str, *, servers: int = 0, subscribers: int = 0) -> KnownService:
    process = {1: "a", 2: "b"}.get(node, "c")
    return KnownService(node, name, ServedPath(process, servers, subscribers))


def test_other_nodes_are_told_of_the_last_of_many_changes() -> None:
    node = Node()
    node.services.registered("price", 1)
    node.services.registered("price", 2)
    node.services.subscribed("service/serve/price", 1)
    node.services.subscribed("service.serve.a.*", 1)
    node.services.registered("gone", 1)
    node.services.registered("gone", 0)
    assert not node.store.written
    assert node.later() == [("price", 2, 1), ("a/+", 0, 1)]
    node.services.subscribed("service/serve/a/+", 1)
    node.services.registered("price", 2)
    assert node.later() == [("a/+", 0, 2)]
    node.services.registered("price", 0)
    node.services.subscribed("service/serve/price", -1)
    assert node.later() == [("price", 0, 0)]
    assert node.later() == []


def test_what_could_not_be_written_is_written_again() -> None:
    node = Node()
    node.store.is_full = True
    node.services.registered("price", 1)
    assert node.later() == []
    node.store.is_full = False
    assert node.later() == [("price", 1, 0)]
    node.store.failed.pop()()
    assert node.later() == [("price", 1, 0)]


def test_services_are_those_of_running_processes() -> None:
    node = Node(known(1, "price", servers=1), known(2, "price", subscribers=3))
    node.services.service_changed(known(3, "price", servers=9))
    assert {each: served.servers for each, served in node.services.nodes("price").items()} == {
        1: 1,
        2: 0,
    }
    assert node.services.has_subscriber("price")
    assert list(node.services) == ["price"]
    node.store.running = {1: "another process", 3: "c"}
    assert list(node.services.nodes("price")) == [3]
    node.services.service_changed(KnownService(3, "price", None))
    assert list(node.services) == ["price"], "of nodes that do not run"
    assert not node.services.nodes("price")
    assert node.services.choose("price") is None
    assert not node.services.has_subscriber("price")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("wide/+", {"wide/a"}), ("wide.#", {"wide/a", "wide/a/b"}), ("wide/a", {"wide/a"})],
)
def test_subscribers_may_have_wildcards(pattern: str, matches: set[str]) -> None:
    node = Node()
    node.services.service_changed(known(1, pattern, subscribers=1))
    node.services.service_changed(known(1, "#" * 3, servers=1))
    names = ("wide/a", "wide/a/b", "other")
    assert {name for name in names if node.services.has_subscriber(name)} == matches
    assert node.services.choose("wide/a") is None
    node.services.service_changed(KnownService(1, pattern, None))
    assert not any(map(node.services.has_subscriber, names))


def test_a_name_that_is_no_pattern_is_passed_over() -> None:
    node = Node(known(1, "#/a", servers=1))
    assert not list(node.services)


def test_the_node_whose_servers_have_the_fewest_requests_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(known(1, "price", servers=2), known(2, "price", servers=1))
    assert [node.services.choose("price") for _ in range(4)] == [1, 2, 1, 2]
    pending = {node_target(1): 3, node_target(2): 1}
    monkeypatch.setattr(node.requests, "pending_to", pending.__getitem__)
    assert node.services.choose("price") == 2
    pending[node_target(2)] = 2
    assert node.services.choose("price") == 1


def test_a_path_that_is_not_served_any_more_leaves_nothing_behind() -> None:
    node = Node()
    alone = RemoteServices(node.requests, node.timers)
    before = bytes_of(alone), bytes_of(node.services)
    for number in range(5000):
        for services in (alone, node.services):
            services.registered(f"path/{number}", 1)
            services.subscribed(f"service/serve/path/{number}", 1)
            services.subscribed(f"service/serve/path/{number}", -1)
        if number % 2:
            node.later()
        for services in (alone, node.services):
            services.registered(f"path/{number}", 0)
    assert bytes_of(node.services) < before[1] + 20_000, "without what is told later"
    node.later()
    assert bytes_of(alone) < before[0] + 20_000
    assert bytes_of(node.services) < before[1] + 20_000


def test_nodes_that_join_later_are_told_of_the_services_before() -> None:
    node = Node()
    services = RemoteServices(node.requests, node.timers)
    services.registered("price", 2)
    services.share(node.store)
    assert node.later() == [("price", 2, 0)]

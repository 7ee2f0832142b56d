"""The limit of connections: per process, per address and per descriptor."""

from penstock.server.connections import ConnectionLimit


class Socket:
    """A connection as the limit sees it."""

    peer = "192.0.2.1:5000"

    def __init__(self, host: str = "192.0.2.1", *, established: bool = False) -> None:
        self.connection = 1
        self.descriptor = -1
        self.host = host
        self.established = established
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


def enter(limit: ConnectionLimit, socket: Socket, *, descriptor: int = -1) -> str | None:
    reason = limit.acquire(socket.host, descriptor=descriptor)
    if reason is None:
        limit.watch(socket)
    return reason


def test_the_oldest_connection_without_a_session_gives_way() -> None:
    limit = ConnectionLimit(3)
    sockets = [Socket(established=True), Socket(), Socket()]
    assert [enter(limit, each) for each in sockets] == [None] * 3
    assert enter(limit, Socket()) is None
    assert [each.aborted for each in sockets] == [0, 1, 0]
    limit.release(sockets[1].host, sockets[1])  # the aborted one closes
    assert limit.connections == 3


def test_connections_with_sessions_do_not_give_way() -> None:
    limit = ConnectionLimit(2)
    sockets = [Socket(established=True), Socket(established=True)]
    assert [enter(limit, each) for each in sockets] == [None] * 2
    assert enter(limit, Socket()) == "too many connections"
    assert limit.connections == 2
    limit.release(sockets[0].host, sockets[0])
    assert enter(limit, Socket()) is None


def test_one_address_has_its_share_and_disturbs_no_other() -> None:
    limit = ConnectionLimit(10, per_address_max=2)
    other = Socket("192.0.2.9")
    assert enter(limit, other) is None
    own = [Socket(established=True), Socket()]
    assert [enter(limit, each) for each in own] == [None] * 2
    assert enter(limit, Socket(established=True)) is None  # for one of its own
    assert (own[1].aborted, other.aborted) == (1, 0)
    limit.release(own[1].host, own[1])
    assert enter(limit, Socket()) == "too many connections of one address"
    for _ in range(2):
        limit.release("192.0.2.1")
    assert enter(limit, Socket()) is None  # the count of an address is given back


def test_a_socket_with_a_reserved_descriptor_is_refused() -> None:
    limit = ConnectionLimit(10, descriptors_max=100)
    assert enter(limit, Socket(established=True), descriptor=99) is None
    assert enter(limit, Socket(), descriptor=100) == "too many connections"
    assert limit.connections == 1

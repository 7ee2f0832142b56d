"""Origin checks: pages of the listener itself, listed origins, and DNS rebinding."""

import pytest

from penstock.transport.addresses import Address
from penstock.transport.origin_policy import OriginPolicy

LOCAL = OriginPolicy(Address("ws", "127.0.0.1", origins=("https://app.example",)))
OPEN = OriginPolicy(Address("ws", "0.0.0.0"))  # noqa: S104
ANY = OriginPolicy(Address("ws", "127.0.0.1", origins=("*",)))


@pytest.mark.parametrize(
    ("policy", "origin", "host", "requests", "connects"),
    [
        (LOCAL, None, "127.0.0.1:7080", True, True),
        (LOCAL, None, "evil.example", True, True),  # a program; see allows_host
        (LOCAL, "http://localhost:7080", "localhost:7080", True, True),
        (LOCAL, "http://[::1]:7080", "[::1]:7080", True, True),
        (LOCAL, "https://app.example", "127.0.0.1:7080", True, True),
        (LOCAL, "https://app.example:1", "app.example:1", True, True),  # through a proxy
        (LOCAL, "http://evil.example:7080", "evil.example:7080", True, False),
        (LOCAL, "http://evil.example", "127.0.0.1:7080", False, False),
        (LOCAL, "null", "127.0.0.1:7080", False, False),
        (LOCAL, "http://[", "[", False, False),
        (LOCAL, "", "", True, False),
        (OPEN, "http://plant.example:7080", "plant.example:7080", True, True),
        (OPEN, "http://evil.example", "plant.example:7080", False, False),
        (ANY, "http://evil.example:7080", "evil.example:7080", True, True),
    ],
)
def test_which_pages_may_send_requests_and_open_websockets(
    *, policy: OriginPolicy, origin: str | None, host: str, requests: bool, connects: bool
) -> None:
    assert policy.allows_request(origin, host) is requests
    assert policy.allows_websocket(origin, host) is connects

"""Requests of clients of other nodes are remembered up to a limit."""

import pytest

from penstock.gateway.fleximq import remote
from penstock.gateway.fleximq.remote import RemoteRequests


def test_of_too_many_requests_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUESTS_REMOTE_MAX", 2)
    requests = RemoteRequests()
    for identifier in "abc":
        requests.add(identifier, requester=1, target=7)
    assert requests.pending_to(7) == 2
    taken = [requests.take(each, requester=1, target=7) for each in "abc"]
    assert taken == [False, True, True]

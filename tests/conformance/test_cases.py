"""Every conformance case against a live broker, on a shared port and on a port of its protocol."""

from collections.abc import Iterator

import pytest

from penstock.client.address import parse_address
from penstock.conform import Case, Outcome, Setup, run, suite
from penstock.protocols import PROTOCOLS
from tests.conformance.setups import Served, broker_of

SECONDS_MAX = 5.0


def ports(setup: Setup | None) -> list[str]:
    """The ports that a case with this setup runs on."""
    if setup in {Setup.SHARED, Setup.PROGRAM, Setup.UDP, Setup.WEBSOCKET}:
        return ["shared"]
    return ["pinned"] if setup is Setup.PINNED else ["shared", "pinned"]


def parameters() -> Iterator[object]:
    for protocol in PROTOCOLS:
        for case in suite(protocol.label).cases:
            for port in ports(case.requires):
                label = f"{protocol.label}-{case.name}-{port}"
                yield pytest.param((protocol, port), case, id=label)


@pytest.fixture(scope="module")
def open_broker(request: pytest.FixtureRequest) -> Iterator[Served]:
    """The broker of all cases of a protocol and port that require no setup."""
    protocol, port = request.param
    with broker_of(None, protocol if port == "pinned" else None) as served:
        yield served


@pytest.mark.parametrize(("open_broker", "case"), list(parameters()), indirect=["open_broker"])
def test_case(open_broker: Served, case: Case, request: pytest.FixtureRequest) -> None:
    if case.requires is None:
        check(open_broker, case)
        return
    protocol, port = request.node.callspec.params["open_broker"]
    with broker_of(case.requires, protocol if port == "pinned" else None) as served:
        check(served, case)


def check(served: Served, case: Case) -> None:
    results = run(
        [case],
        parse_address(served.url),
        seconds_max=SECONDS_MAX,
        profile=True,
        setup=case.requires,
        restart=served.restart,
    )
    (result,) = results
    assert result.outcome is Outcome.PASSED, (
        f"{case.rule} ({case.section}): {result.reason}\n"
        f"sent      {result.sent}\nexpected  {result.expected}\ngot       {result.got}"
    )
    live = served.live
    failed = live.call(lambda: live.server.broker.counters.connections_failed["internal error"])
    assert failed == 0

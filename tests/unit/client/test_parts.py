"""The parts of a client that need neither a broker nor an event loop."""

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import penstock
from penstock import client as public
from penstock.client.address import parse_address
from penstock.client.errors import (
    BadOption,
    ConnectionLost,
    InvalidAddress,
    PartlyRefused,
    Refused,
    TimedOut,
    Unsupported,
)
from penstock.client.options import Backoff, Options, State
from penstock.client.state import NEXT, may_move
from penstock.client.topics import TopicMatcher, plain_topic, without_replay
from penstock.client.values import WRITE_BYTES_MAX, WRITE_VALUES_MAX, header_pairs, write_batches
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.lamamq import LAMAMQ


def test_importing_the_package_does_not_load_the_client() -> None:
    code = "import sys, penstock; assert not [m for m in sys.modules if m.startswith('penstock.')]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)  # noqa: S603
    assert penstock.connect is public.connect
    assert penstock.connect_sync is public.connect_sync
    with pytest.raises(AttributeError):
        _ = penstock.disconnect  # type: ignore[attr-defined]


def test_public_names_exist() -> None:
    assert sorted(public.__all__) == public.__all__
    assert all(hasattr(public, name) for name in public.__all__)


# --- Addresses ------------------------------------------------------------------------------------


def test_addresses_are_taken_apart() -> None:
    tcp = parse_address("tcp://127.0.0.1:7000")
    assert (tcp.scheme, tcp.host, tcp.port) == ("tcp", "127.0.0.1", 7000)
    assert parse_address("tls://[::1]:7000/").host == "::1"
    assert parse_address("ipc:///run/p.sock").path == "/run/p.sock"
    assert parse_address("ipc://p.sock").path == str(Path(tempfile.gettempdir()) / "p.sock")
    assert parse_address("ws://localhost:7080/ws").url == "ws://localhost:7080/ws"


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:7000", "tcp://", "tcp://host", "tcp://host:x", "tcp://host:70000", "ipc://",
     "tcp://host:1/path", "udp://host:1", "http://host:1", "", "tcp://host:0", "tcp://host:1?echo=true", "ws://host/ws"],
)  # fmt: skip
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        parse_address(url)
    assert caught.value.address == url


# --- Topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "a.b"]),
        ("a/+", ["a/b", "a.b"], ["a", "a/b/c"]),
        ("a.*.c", ["a/b/c", "a.b.c"], ["a.c", "a.b.d"]),
        ("a/#", ["a", "a/b", "a.b.c"], ["ab", "b/a"]),
        (">", ["a", "a/b"], []),
        ("a/b@earliest", ["a/b"], ["a/b@earliest"]),
        ("a/b@later", ["a/b@later"], ["a/b"]),
        ("+@#12", ["a"], ["a/b"]),
    ],
)
def test_a_topic_belongs_to_the_subscriptions_that_match_it(
    pattern: str, matched: list[str], others: list[str]
) -> None:
    matches = TopicMatcher(pattern)
    assert all(matches(topic) for topic in matched)
    assert not any(matches(topic) for topic in others)


@pytest.mark.parametrize(
    "suffix", ["@earliest", "@-15m", "@2026-11-01T00:00:00Z", "@#1234", "@2026-11-01"]
)
def test_a_place_in_history_is_no_part_of_the_name(suffix: str) -> None:
    assert without_replay(f"a@b{suffix}") == "a@b"
    assert plain_topic(f"a{suffix}") == "a"
    assert plain_topic(f"a/#{suffix}") is None


# --- Options --------------------------------------------------------------------------------------


def test_back_off_grows_to_its_bound_and_is_cut_at_random() -> None:
    backoff = Backoff(seconds_min=1, seconds_max=10, factor=2, jitter=0.5)
    assert [backoff.seconds(n, 0) for n in range(6)] == [1, 2, 4, 8, 10, 10]
    assert [backoff.seconds(n, 1) for n in range(6)] == [0.5, 1, 2, 4, 5, 5]
    assert backoff.seconds(10**9, 0.5) == 7.5


@pytest.mark.parametrize(
    "values",
    [{"seconds_min": -1}, {"seconds_min": 2, "seconds_max": 1}, {"factor": 0.5}, {"jitter": 2}],
)
def test_a_back_off_that_makes_no_sense_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(BadOption):
        Backoff(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["timeout", "queue_max", "requests_max", "keepalive"])
def test_bounds_are_above_zero(option: str) -> None:
    with pytest.raises(BadOption, match=option):
        Options(**{option: 0})  # type: ignore[arg-type]


def test_a_protocol_that_nobody_speaks_is_refused() -> None:
    with pytest.raises(BadOption, match="rheos1, rheos2, fleximq, herald, lamamq"):
        penstock.connect("tcp://localhost:1", protocol="mqtt")  # type: ignore[arg-type]


def test_nothing_follows_the_end() -> None:
    assert not NEXT[State.CLOSED]
    assert set(NEXT) == set(State)
    assert may_move(State.CONNECTED, State.RECONNECTING)
    assert not may_move(State.NEW, State.CONNECTED)


# --- What goes out --------------------------------------------------------------------------------


def test_values_are_cut_into_writes_that_are_bounded_and_keep_their_order() -> None:
    values = [bytes([n % 256]) * (n % 5000) for n in range(3000)]
    found = list(write_batches(iter(values)))
    assert [value for run in found for value in run] == values
    for run in found:
        assert len(run) <= WRITE_VALUES_MAX
        assert len(run) == 1 or sum(map(len, run)) <= WRITE_BYTES_MAX
    assert list(write_batches([])) == []
    assert (
        list(write_batches([bytes(2 * WRITE_BYTES_MAX)] * 2)) == [[bytes(2 * WRITE_BYTES_MAX)]] * 2
    )


def test_headers_are_a_mapping_or_pairs_of_text_or_bytes() -> None:
    assert header_pairs({"a": "ü", "b": b"\xff"}) == (("a", "ü".encode()), ("b", b"\xff"))
    assert header_pairs([("a", "1"), ("a", "2")]) == (("a", b"1"), ("a", b"2"))


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        Refused(FLEXIMQ, 403, "no", b"\xa2no"),
        PartlyRefused(((1, Refused(LAMAMQ, 4, "no")),), 3),
        ConnectionLost("reset"),
        TimedOut("publish", 2.5),
        Unsupported("herald", "request"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_say_what_happened_and_pickle(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert "penstock" not in str(error)


def test_running_out_of_time_is_a_timeout_error() -> None:
    with pytest.raises(TimeoutError):
        raise TimedOut("ping", 1)

"""Addresses are read exactly, or refused with what is wrong."""

import pickle

import pytest

from penstock.errors import BadAddress, ErrorCode, OperatorError
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.transport.addresses import Address, parse_address

GOOD = {
    "tcp://127.0.0.1:7000": Address("tcp", "127.0.0.1", 7000),
    "tcp://localhost:0": Address("tcp", "localhost", 0),
    "tcp://broker-1.example.org:65535": Address("tcp", "broker-1.example.org", 65535),
    "tcp://[::1]:7000": Address("tcp", "::1", 7000),
    "tls://[::]:7443?certificate=/c.pem&key=/k%26.pem": Address(
        "tls", "::", 7443, certificate="/c.pem", key="/k&.pem"
    ),
    "tcp://127.0.0.1:7001?protocol=herald&order=big&echo=false&anonymous=true": Address(
        "tcp", "127.0.0.1", 7001, protocol=HERALD, order="big", echo=False, anonymous=True
    ),
    "udp://127.0.0.1:7000": Address("udp", "127.0.0.1", 7000, protocol=HERALD),
    "ipc:///run/penstock/a%20b.sock?mode=0660": Address(
        "ipc", path="/run/penstock/a b.sock", mode=0o660
    ),
    "ipc://penstock/a.sock": Address("ipc", path="penstock/a.sock"),
    "ws://127.0.0.1:7080/ws": Address(
        "ws", "127.0.0.1", 7080, "/ws", protocol=FLEXIMQ
    ),
    "ws://127.0.0.1:7080?protocol=herald": Address(
        "ws", "127.0.0.1", 7080, "/", protocol=HERALD
    ),
    "wss://0.0.0.0:443/a/b?origins=https://a.example,https://b.example": Address(
        "wss", "0.0.0.0", 443, "/a/b", protocol=FLEXIMQ,  # noqa: S104
        origins=("https://a.example", "https://b.example"),
    ),
}  # fmt: skip

BAD = {
    "": "expected scheme://",
    "7000": "expected scheme://",
    "127.0.0.1:7000": "expected scheme://",
    "http://127.0.0.1:80": "unknown scheme 'http'",
    "TCP://127.0.0.1:80": "unknown scheme 'TCP'",
    "stdio://": "programs are listed in the configuration",
    "tcp://127.0.0.1": "the port is missing",
    "tcp://[::1]": "the port is missing",
    "tcp://127.0.0.1:": "port '' is not a number",
    "tcp://127.0.0.1:65536": "port '65536' is not a number from 0 to 65535",
    "tcp://127.0.0.1:-1": "port '-1' is not a number",
    "tcp://127.0.0.1:٣": "port '٣' is not a number",
    "tcp://:7000": "the host is missing",
    "tcp://::1:7000": "stands in brackets",
    "tcp://[127.0.0.1]:7000": "'127.0.0.1' in brackets is not an IPv6 address",
    "tcp://300.0.0.1:7000": "'300.0.0.1' is not an IPv4 address",
    "tcp://a b:7000": "'a b' is not the name of a host",
    "tcp://user:word@127.0.0.1:7000": "credentials",
    "tcp://127.0.0.1:7000/path": "a tcp address has no path",
    "udp://127.0.0.1:7000/path": "a udp address has no path",
    "tcp://127.0.0.1:7000#x": "%23",
    "tcp://127.0.0.1:7000?colour=red": "unknown option 'colour', known are protocol",
    "tcp://127.0.0.1:7000?protocol=mqtt": "protocol is 'mqtt', expected rheos1",
    "tcp://127.0.0.1:7000?protocol": "protocol is '', expected",
    "tcp://127.0.0.1:7000?echo=yes": "echo is 'yes', expected true or false",
    "tcp://127.0.0.1:7000?echo=true&echo=false": "option echo is given twice",
    "tcp://127.0.0.1:7000?order=big": "order needs protocol=herald",
    "tcp://127.0.0.1:7000?protocol=fleximq&order=big": "order needs protocol=herald",
    "tcp://127.0.0.1:7000?protocol=herald&order=middle": "order is 'middle'",
    "tcp://127.0.0.1:7000?certificate=/c&key=/k": "a tcp address has no option certificate",
    "tls://127.0.0.1:7000?certificate=/c": "certificate and key are given together",
    "tls://127.0.0.1:7000?certificate=&key=/k": "certificate is '', expected the path",
    "tcp://127.0.0.1:7000?mode=0600": "a tcp address has no option mode",
    "udp://127.0.0.1:7000?protocol=fleximq": "only herald is spoken over UDP",
    "udp://127.0.0.1:7000?order=big": "a udp address has no option order",
    "ipc://": "the path is missing",
    "ipc:///run/": "'/run/' is not the path of a file",
    "ipc:///run/a%00b": "is not the path of a file",
    "ipc://../a.sock": "no ..",
    "ipc://a/../../b.sock": "no ..",
    "ipc://a.sock?mode=8": "mode is '8', expected permissions in octal",
    "ipc://a.sock?mode=7777": "mode is '7777'",
    "tcp://127.0.0.1:7000?origins=*": "a tcp address has no option origins",
    "ws://127.0.0.1:7080/ws?origins=a,,b": "origins is 'a,,b'",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_good_address_is_read_and_written_back(url: str) -> None:
    assert parse_address(url) == GOOD[url]
    assert parse_address(str(GOOD[url])) == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_a_bad_address_is_refused_with_what_is_wrong(url: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse_address(url)
    assert BAD[url] in caught.value.problem
    assert repr(url) in str(caught.value)
    assert caught.value.code is ErrorCode.BAD_ADDRESS
    assert isinstance(caught.value, OperatorError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301


@pytest.mark.parametrize(
    "url", ["tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://[::1]:1", "udp://LOCALHOST:1",
            "ws://localhost:1/ws", "ipc://a", "ipc:///a"]
)  # fmt: skip
def test_loopback_addresses_are_known(url: str) -> None:
    assert parse_address(url).is_loopback


@pytest.mark.parametrize(
    "url", ["tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tls://localhost.example:1",
            "udp://192.168.1.1:1"]
)  # fmt: skip
def test_other_addresses_are_not_taken_for_loopback(url: str) -> None:
    assert not parse_address(url).is_loopback


def test_a_location_is_what_a_client_needs() -> None:
    assert parse_address("tcp://[::1]:0?echo=true").with_port(7).location == "tcp://[::1]:7"
    assert parse_address("ws://h:1/ws?anonymous=true").location == "ws://h:1/ws"
    assert parse_address("ipc:///a%20b?mode=600").location == "ipc:///a%20b"

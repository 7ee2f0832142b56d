"""Files of packets: their forms, links and addresses, and TCP put together again."""

import random

import pytest

from penstock.decode.capture import CaptureFormat, CaptureUnreadable, Connection, read_capture
from penstock.decode.connection import explain
from penstock.decode.findings import Frame, Heading, Trouble, TroubleKind
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.unit.decode.packet_bytes import (
    ACK,
    CLIENT,
    CLIENT6,
    COOKED,
    COOKED2,
    ETHERNET,
    LOOP,
    NULL,
    RAW,
    SERVER,
    SERVER6,
    SYN,
    ip,
    linked,
    pcap,
    pcapng,
    session,
    tcp,
    udp,
)

TO_SERVER = herald.handshake_pub() + herald.publish(7, b"21.5") + herald.PING
TO_CLIENT = herald.frame(0x03, bytes(9)) + herald.PONG
NAMES = ["HANDSHAKE_PUB", "PUBLISH", "PING", "HANDSHAKE_ACK", "PONG"]
SESSION = session(TO_SERVER, TO_CLIENT)


def connections(data: bytes) -> list[Connection]:
    return read_capture(data, name="test").connections


def names(connection: Connection) -> list[str]:
    return [finding.name for finding in explain(connection, 1) if isinstance(finding, Frame)]


def sides(connection: Connection) -> tuple[bytes, bytes]:
    """All that each side sent, with gaps as question marks."""
    found = {True: b"", False: b""}
    for piece in connection.pieces:
        found[piece.forward] += piece.data + b"?" * piece.gap
    return found[True], found[False]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("form", ["micro", "nano", "ng"])
def test_both_formats_are_read_in_both_orders(form: str, order: str) -> None:
    if form == "ng":
        data = pcapng(SESSION, order=order)
    else:
        data = pcap(SESSION, order=order, nanoseconds=form == "nano")
    (connection,) = connections(data)
    assert names(connection) == NAMES
    assert connection.name(forward=True) == "127.0.0.1:5000 → 127.0.0.1:7000"


@pytest.mark.parametrize("link", [ETHERNET, NULL, LOOP, RAW, COOKED, COOKED2])
@pytest.mark.parametrize("ends", [(CLIENT, SERVER), (CLIENT6, SERVER6)], ids=["ipv4", "ipv6"])
def test_every_link_carries_both_versions_of_ip(
    link: int, ends: tuple[tuple[str, int], tuple[str, int]]
) -> None:
    packets = session(TO_SERVER, TO_CLIENT, client=ends[0], server=ends[1])
    (connection,) = connections(pcap(packets, link=link))
    assert names(connection) == NAMES


def test_ipv6_endpoints_have_brackets() -> None:
    packets = session(TO_SERVER, TO_CLIENT, client=CLIENT6, server=SERVER6)
    (connection,) = connections(pcap(packets))
    assert connection.name(forward=True) == "[2001:db8::1]:5000 → [2001:db8::2]:7000"


def test_a_vlan_tag_and_padding_are_passed_over() -> None:
    def tagged(packet: bytes) -> bytes:
        plain = linked(ETHERNET, packet)
        return plain[:12] + b"\x81\x00\x00\x05" + plain[12:] + bytes(6)

    data = bytearray(pcap([]))
    for packet in SESSION:
        framed = tagged(packet)
        data += b"".join(
            number.to_bytes(4, "little") for number in (0, 0, len(framed), len(framed))
        )
        data += framed
    (connection,) = connections(bytes(data))
    assert names(connection) == NAMES


# --- Reassembly -----------------------------------------------------------------------------------


def pieces_of(data: bytes, size: int, *, sequence: int = 100) -> list[bytes]:
    return [
        tcp(CLIENT, SERVER, sequence + at, data[at : at + size]) for at in range(0, len(data), size)
    ]


OPENING = [tcp(CLIENT, SERVER, 99, flags=SYN), tcp(SERVER, CLIENT, 499, flags=SYN | ACK)]


@pytest.mark.parametrize("seed", range(20))
def test_segments_in_any_order_and_sent_again_give_the_stream(seed: int) -> None:
    source = random.Random(seed)
    data = bytes(source.randrange(256) for _ in range(400))
    parts = pieces_of(data, source.randrange(1, 50)) + pieces_of(data, source.randrange(1, 90))
    source.shuffle(parts)
    (connection,) = connections(pcap([*OPENING, *parts]))
    assert sides(connection) == (data, b"")


def test_sequence_numbers_wrap() -> None:
    start = 2**32 - 7
    packets = [tcp(CLIENT, SERVER, start - 1, flags=SYN), *pieces_of(TO_SERVER, 3, sequence=start)]
    (connection,) = connections(pcap(packets))
    assert sides(connection)[0] == TO_SERVER


def test_missing_bytes_are_a_gap() -> None:
    parts = pieces_of(bytes(range(100)), 10)
    (connection,) = connections(pcap([*OPENING, *parts[:3], *parts[5:]]))
    assert sides(connection)[0] == bytes(range(30)) + b"?" * 20 + bytes(range(50, 100))


def test_bytes_that_the_capture_cut_off_are_a_gap() -> None:
    whole = linked(ETHERNET, tcp(CLIENT, SERVER, 100, b"0123456789"))
    data = pcap(OPENING)
    cut = whole[:-4]
    data += b"".join(n.to_bytes(4, "little") for n in (0, 0, len(cut), len(whole))) + cut
    data += pcap([tcp(CLIENT, SERVER, 110, b"abc")])[24:]
    (connection,) = connections(data)
    assert sides(connection)[0] == b"012345????abc"


def test_after_a_gap_herald_goes_on_at_its_magic() -> None:
    stream = herald.handshake_pub() + herald.publish(7, b"lost" * 10) + herald.publish(7, b"found")
    packets = [
        tcp(CLIENT, SERVER, 100 + at, stream[at : at + 5]) for at in range(0, len(stream), 5)
    ]
    (connection,) = connections(pcap([*OPENING, *packets[:4], *packets[6:]]))
    found = list(explain(connection, 1))
    kinds = [f.kind if isinstance(f, Trouble) else getattr(f, "name", "") for f in found[1:]]
    assert kinds == [
        "HANDSHAKE_PUB", TroubleKind.CUT_SHORT, TroubleKind.GAP, TroubleKind.SKIPPED, "PUBLISH",
    ]  # fmt: skip
    assert found[-1].data == herald.publish(7, b"found")  # type: ignore[union-attr]
    gap = next(f for f in found if isinstance(f, Trouble) and f.kind is TroubleKind.GAP)
    assert (gap.offset, gap.length) == (20, 10)


def test_after_a_gap_lamamq_stops() -> None:
    stream = lama.authentication(b"n")
    rest = lama.CHOICE + lama.push(1, b"topic", b"x" * 30)
    packets = [tcp(CLIENT, SERVER, 100, stream), tcp(CLIENT, SERVER, 100 + len(stream) + 4, rest)]
    (connection,) = connections(pcap([*OPENING, *packets]))
    *_, gap, unread = explain(connection, 1)
    assert isinstance(gap, Trouble)
    assert isinstance(unread, Trouble)
    assert gap.kind is TroubleKind.GAP
    assert "stops here" in gap.fault.text
    assert (unread.kind, unread.length) == (TroubleKind.UNREAD, len(rest))


# --- Connections ----------------------------------------------------------------------------------


def test_connections_are_told_apart_and_numbered_in_order() -> None:
    other = ("127.0.0.1", 5001)
    packets = [
        packet
        for both in zip(SESSION, session(TO_SERVER, TO_CLIENT, client=other), strict=True)
        for packet in both
    ]
    one, two = connections(pcap(packets))
    assert names(one) == names(two) == NAMES
    assert one.name(forward=True).startswith("127.0.0.1:5000")
    assert two.name(forward=True).startswith("127.0.0.1:5001")


def test_a_port_that_is_used_again_is_another_connection() -> None:
    assert [names(each) for each in connections(pcap(SESSION + SESSION))] == [NAMES, NAMES]


def test_without_the_opening_the_bytes_tell_who_is_the_client() -> None:
    packets = [SESSION[4], SESSION[3]]  # the server's first
    (connection,) = connections(pcap(packets))
    heading, *found = explain(connection, 1)
    assert isinstance(heading, Heading)
    assert heading.name == "127.0.0.1:5000 → 127.0.0.1:7000"
    assert [f.from_client for f in found if isinstance(f, Frame)] == [False] * 2 + [True] * 3


def test_both_sides_come_in_the_order_of_the_capture_and_answers_find_their_requests() -> None:
    dialogue = [
        (True, lama.authentication(b"n")),
        (False, lama.OFFER),
        (True, lama.CHOICE + lama.push(0x8000_0000, b"t", b"x")),
        (False, lama.answer(0x8000_0000, 1, b"no room")),
        (False, lama.forward(3, b"t", b"x")),
    ]
    packets, at = list(OPENING), {True: 100, False: 500}
    for from_client, data in dialogue:
        ends = (CLIENT, SERVER) if from_client else (SERVER, CLIENT)
        packets.append(tcp(*ends, at[from_client], data))
        at[from_client] += len(data)
    (connection,) = connections(pcap(packets))
    assert names(connection) == [
        "Authentification", "Supported protocol version", "Protocol version to use",
        "Push message", "Answer", "Forward message",
    ]  # fmt: skip


def test_herald_over_udp_is_read_and_other_datagrams_are_not() -> None:
    packets = [udp(CLIENT, SERVER, TO_SERVER), udp(CLIENT, SERVER, b"\x12\x34 a question of DNS")]
    (connection,) = connections(pcap(packets))
    assert names(connection) == NAMES[:3]


# --- What cannot be read --------------------------------------------------------------------------


def test_a_file_that_is_cut_short_is_read_up_to_there() -> None:
    for data in (pcap(SESSION), pcapng(SESSION)):
        capture = read_capture(data[:-3], name="test")
        assert names(capture.connections[0]) == NAMES
        (remark,) = capture.remarks
        assert "cut short" in remark
        assert "what is before it is decoded" in remark


def test_fragments_and_unknown_links_are_counted() -> None:
    fragment = ip(CLIENT, SERVER, 6, bytes(40), fragment=0x2000)
    capture = read_capture(pcap([fragment, *SESSION]), name="test")
    assert capture.remarks == ["1 packet is left out: it is a fragment of an IP packet"]
    with pytest.raises(CaptureUnreadable, match="links of type 147"):
        read_capture(pcap(SESSION, link=147), name="test")


@pytest.mark.parametrize("data", [pcap([]), pcap([ip(CLIENT, SERVER, 1, b"ping")])])
def test_a_file_without_connections_says_so(data: bytes) -> None:
    with pytest.raises(CaptureUnreadable, match="no TCP connection"):
        read_capture(data, name="test")


def test_what_is_no_file_of_packets_says_so() -> None:
    with pytest.raises(CaptureUnreadable, match="neither pcap nor pcapng"):
        read_capture(b"\xfe\xca\x20", name="test", form=CaptureFormat.PCAP)


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_file_raises_nothing_else(seed: int) -> None:
    source = random.Random(seed)
    for data in (pcap(SESSION), pcapng(SESSION), pcap(SESSION, link=COOKED2)):
        for _ in range(150):
            damaged = bytearray(data)
            for _ in range(source.randrange(1, 6)):
                damaged[source.randrange(4, len(damaged))] = source.randrange(256)
            try:
                capture = read_capture(bytes(damaged), name="test", form=CaptureFormat.PCAP)
            except CaptureUnreadable:
                continue
            for connection in capture.connections:
                list(explain(connection, 1))

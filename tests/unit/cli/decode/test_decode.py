"""`penstock decode`: its text, its JSON, and what it cannot read."""

import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.commands import Commands
from tests.unit.decode.packet_bytes import CLIENT, SERVER, pcap, pcapng, session, tcp

PUBLISH = herald.publish(12, b"on\x1b[2J")
STREAM = herald.handshake_pub(12, b"panel-4") + PUBLISH + herald.PING


def written(folder: Path, data: bytes, name: str = "capture") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_frames_are_told_field_by_field(commands: Commands, tmp_path: Path) -> None:
    path = written(tmp_path, STREAM)
    done = commands.run("decode", path)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"connection 1 {path} herald, little-endian",
        "→ frame 1 at 0, 16 bytes: HANDSHAKE_PUB",
        "  0  fe ca                 Magic         0xCAFE herald",
        "  2  01                    OpCode        1 HANDSHAKE_PUB",
        "  3  09 00 00 00           Length        9",
        "  7  0c                    Channel       12",
        "  8  07                    ClientID Len  7",
        "  9  70 61 6e 65 6c 2d 34  ClientID      panel-4",
        "→ frame 2 at 16, 14 bytes: PUBLISH",
        "  16  fe ca              Magic    0xCAFE herald",
        "  18  10                 OpCode   16 PUBLISH",
        "  19  07 00 00 00        Length   7",
        "  23  0c                 Channel  12",
        r"  24  6f 6e 1b 5b 32 4a  Message  on\x1b[2J",
        "→ frame 3 at 30, 7 bytes: PING",
        "  30  fe ca        Magic   0xCAFE herald",
        "  32  20           OpCode  32 PING",
        "  33  00 00 00 00  Length  0",
        "3 frames in 1 connection, 0 faults",
    ]


@pytest.mark.parametrize(
    "data",
    [
        STREAM.hex().encode(),
        STREAM.hex(" ", 2).upper().encode() + b"\n",
        f"00000000: {STREAM[:16].hex(' ', 2)}  ................\n"
        f"00000010: {STREAM[16:32].hex(' ', 2)}  ................\n"
        f"00000020: {STREAM[32:].hex(' ', 2)}   ...\n".encode(),
        pcap(session(STREAM, b"")),
        pcapng(session(STREAM, b"")),
    ],
    ids=["plain", "spaced", "xxd", "pcap", "pcapng"],
)
def test_every_format_is_recognised(commands: Commands, tmp_path: Path, data: bytes) -> None:
    done = commands.run("decode", written(tmp_path, data))
    assert (done.code, done.err) == (0, "")
    frames = [line.partition(": ")[2] for line in done.out.splitlines() if " frame " in line]
    assert frames == ["HANDSHAKE_PUB", "PUBLISH", "PING"]


def test_connections_of_a_pcap_have_numbers_and_endpoints(
    commands: Commands, tmp_path: Path
) -> None:
    second = session(STREAM, herald.PONG, client=("127.0.0.1", 5001))
    done = commands.run("decode", written(tmp_path, pcap(session(STREAM, b"") + second)))
    headings = [line for line in done.out.splitlines() if line.startswith("connection")]
    assert headings == [
        "connection 1 127.0.0.1:5000 → 127.0.0.1:7000 herald, little-endian",
        "connection 2 127.0.0.1:5001 → 127.0.0.1:7000 herald, little-endian",
    ]
    assert "← frame 1 at 0, 7 bytes: PONG" in done.out
    assert done.out.endswith("7 frames in 2 connections, 0 faults\n")


def test_faults_have_name_and_offset_and_end_with_one(commands: Commands, tmp_path: Path) -> None:
    bad = herald.frame(0x30, b"x")
    done = commands.run("decode", written(tmp_path, bad + herald.PING + b"\xfe\xcb"))
    assert done.code == 1
    lines = done.out.splitlines()
    assert "  2  30           OpCode   48  ! no such value" in lines
    assert "  ! INVALID_OPCODE at 2: invalid operation code 0x30" in lines
    assert (
        "→ ! BAD_MAGIC at 15: frame starts with fe cb, expected fe ca; the next frame is searched "
        "by its mark"
    ) in lines
    assert lines[-1] == "2 frames in 1 connection, 2 faults"


def test_a_gap_is_told(commands: Commands, tmp_path: Path) -> None:
    packets = session(herald.handshake_pub(), b"")
    at = 100 + len(herald.handshake_pub()) + 9
    data = pcap([*packets[:4], tcp(CLIENT, SERVER, at, herald.PING)])
    done = commands.run("decode", written(tmp_path, data))
    assert done.code == 1
    said = "→ ! gap at 10: the capture lacks 9 bytes; the next frame is searched by its mark\n"
    assert said in done.out
    assert "→ frame 2 at 19, 7 bytes: PING" in done.out


def test_protocol_role_and_order_can_be_said(commands: Commands, tmp_path: Path) -> None:
    answer = lama.OFFER + lama.answer(7, order=lama.LITTLE)
    done = commands.run(
        "decode", written(tmp_path, answer), "--protocol", "lamamq", "--role", "server",
        "--order", "little",
    )  # fmt: skip
    assert done.code == 0
    assert "← frame 2 at 4, 5 bytes: Answer" in done.out
    assert "  4  07 00 00 00  message id  7" in done.out


def test_the_checksum_of_a_rheos_packet_is_computed(commands: Commands, tmp_path: Path) -> None:
    head = b"\xac\x00" + bytes(range(16))
    checksum = zlib.crc32(head)
    good = head + checksum.to_bytes(4, "little")
    bad = head + (checksum ^ 1).to_bytes(4, "little")
    done = commands.run("decode", written(tmp_path, good + bad))
    assert done.code == 1
    assert f"CRC32       0x{checksum:08X}\n" in done.out
    assert f"! computed 0x{checksum:08x}" in done.out
    assert "← ! CORRUPTED_DATA at 40: " in done.out


def test_a_limit_ends_it(commands: Commands, tmp_path: Path) -> None:
    done = commands.run("decode", written(tmp_path, STREAM), "--limit", 2)
    assert done.code == 0
    assert done.out.endswith("2 frames in 1 connection, 0 faults\n")
    assert done.out.count("→ frame") == 2


def test_json_has_an_object_a_line(commands: Commands, tmp_path: Path) -> None:
    bad = herald.frame(0x30)
    path = written(tmp_path, PUBLISH + bad + herald.PING[:3])
    done = commands.run("decode", path, "--json")
    assert done.code == 1
    heading, publish, wrong, cut = map(json.loads, done.out.splitlines())
    assert heading == {
        "type": "connection", "connection": 1, "name": str(path), "protocol": "herald",
        "order": "little", "note": None,
    }  # fmt: skip
    assert {key: value for key, value in publish.items() if key != "fields"} == {
        "type": "frame", "connection": 1, "from": "client", "frame": 1, "offset": 0, "length": 14,
        "name": "PUBLISH", "error": None,
    }  # fmt: skip
    assert publish["fields"][1] == {
        "name": "OpCode", "offset": 2, "length": 1, "hex": "10", "value": 16, "means": "PUBLISH",
        "fault": None,
    }  # fmt: skip
    assert "".join(field["hex"] for field in publish["fields"]) == PUBLISH.hex()
    assert wrong["error"] == {
        "name": "INVALID_OPCODE", "offset": 16, "text": "invalid operation code 0x30",
    }  # fmt: skip
    assert (cut["type"], cut["offset"], cut["length"]) == ("cut short", 21, 3)
    assert cut["error"]["name"] == "cut short"


def test_what_is_no_protocol_is_a_fault(commands: Commands, tmp_path: Path) -> None:
    data = pcap(session(b"SSH-2.0-x\r\n", b"") + session(STREAM, b"", client=("127.0.0.1", 5001)))
    done = commands.run("decode", written(tmp_path, data))
    assert done.code == 1
    assert "connection 1 127.0.0.1:5000 → 127.0.0.1:7000 not decoded: " in done.out
    assert done.out.endswith("3 frames in 2 connections, 1 fault\n")


def test_standard_input_is_read() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "decode", "-"],
        input=b"fe ca 20 00 00 00 00\n", capture_output=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith("connection 1 standard input herald, little-endian\n")


@pytest.mark.parametrize(
    ("data", "arguments", "said"),
    [
        (None, [], "No such file or directory; give a file, or - for standard input"),
        (b"", [], "there are no bytes in it"),
        (b"fe c", ["--format", "hex"], "line 1 is no hex: an odd number of digits"),
        (b"\xff", ["--format", "hex"], "it is not text; try --format raw"),
        (b"fe ca", ["--format", "pcap"], "it is neither pcap nor pcapng"),
        (pcap([]), [], "no TCP connection with data in its 0 packets"),
        (b"x", ["--protocol", "mqtt"], "mqtt"),
        (b"x", ["--limit", "0"], "--limit"),
        (b"x", ["--role", "me"], "--role"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    commands: Commands, tmp_path: Path, data: bytes | None, arguments: list[str], said: str
) -> None:
    path = tmp_path / "capture"
    if data is not None:
        path.write_bytes(data)
    assert said in commands.run("decode", path, *arguments).error_line()


def test_a_damaged_file_of_packets_is_told_on_standard_error(
    commands: Commands, tmp_path: Path
) -> None:
    path = written(tmp_path, pcap(session(STREAM, b""))[:-3])
    done = commands.run("decode", path)
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert f"penstock: {path}: a packet is cut short at byte" in done.err


@pytest.mark.parametrize(
    ("size", "where", "before"),
    [
        (4, "the header is cut short at byte 0", "0 packets"),
        (30, "a packet is cut short at byte 24", "0 packets"),
        (100, "a packet is cut short at byte 98", "1 packet"),
    ],
)
def test_a_file_of_packets_that_is_cut_before_any_data_is_one_line(
    commands: Commands, tmp_path: Path, size: int, where: str, before: str
) -> None:
    path = written(tmp_path, pcap(session(STREAM, b""))[:size])
    assert commands.run("decode", path).error_line() == (
        f"cannot decode {path}: {where} of the file, and there is no TCP connection with data "
        f"in the {before} before; give the whole file"
    )


def test_help_has_examples(commands: Commands) -> None:
    done = commands.run("decode", "--help")
    assert done.code == 0
    assert "penstock decode session.pcap" in done.out

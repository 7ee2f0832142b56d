"""The Wireshark dissector shows what `penstock decode` shows, in a capture of real traffic."""

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET  # what tshark writes, not what a stranger sends

import pytest

import penstock
from penstock.middleware import HookStrategy
from penstock.protocols import PROTOCOLS
from tests.support.commands import Commands
from tests.support.live import LiveBroker
from tests.support.recorded_traffic import SERVER, RecordedTraffic
from tests.unit.decode.packet_bytes import pcap, session, udp
from tools.dissector import DISSECTOR, LAYOUTS, dissector, slug

Frames = dict[tuple[int, bool], list[list[tuple[str, str]]]]
"""The frames of each client's port and side: names and bytes of their fields."""


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedTraffic]:
    """Clients of all protocols, each of which publishes to a subscriber of its own."""
    with (
        LiveBroker(data=tmp_path_factory.mktemp("log")) as broker,
        RecordedTraffic(broker.address) as recorded,
    ):
        for protocol in PROTOCOLS:
            with penstock.connect_sync(recorded.url, protocol=protocol.label) as client:
                topic = 7 if protocol.label == "herald" else f"seen/{protocol.label}"
                if protocol.label.startswith("rheos"):
                    client.create_topic(topic)
                with client.subscribe(topic, timeout=10) as messages:
                    with penstock.connect_sync(recorded.url, protocol=protocol.label) as sender:
                        sender.publish(topic, b"21.5")
                        sender.publish(topic, b"x" * 300)
                    assert next(messages).value == b"21.5"
                    assert len(next(messages).value) == 300
        with penstock.connect_sync(recorded.url, protocol="lamamq") as judge:
            wait = HookStrategy.WAIT_OR_REFUSE
            with (
                judge.middleware("judge", lambda _: None, strategy=wait),
                penstock.connect_sync(recorded.url, protocol="lamamq") as sender,
            ):
                sender.publish("seen/judged", b"yes", headers=[("k", b"v"), ("empty", b"")])
        yield recorded


def tshark(capture: bytes, *arguments: str) -> str:
    found = shutil.which("tshark")
    if found is None:
        pytest.skip("tshark is not installed: apt-get install tshark")
    command = [found, "-X", f"lua_script:{DISSECTOR}", "-r", "-", *arguments]
    ended = subprocess.run(  # noqa: S603
        command, input=capture, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert b"Lua" not in ended.stderr, ended.stderr
    return ended.stdout.decode()


def dissected(capture: bytes) -> Frames:
    frames: Frames = defaultdict(list)
    for packet in ET.fromstring(tshark(capture, "-T", "pdml")):  # noqa: S314
        fields = {each.get("name"): each for each in packet.iter("field")}
        for found in packet.findall("proto"):
            name = found.get("name", "")
            if not name.startswith("penstock."):
                continue
            ports = [int(fields[f"tcp.{each}port"].get("show", "")) for each in ("src", "dst")]
            from_client = ports[1] == SERVER[1]
            shown = [
                (each.get("name", "").removeprefix(f"{name}.").rstrip("_"), each.get("value", ""))
                for each in found.findall("field")
            ]
            frames[max(set(ports) - {SERVER[1]}), from_client].append(shown)
    return frames


def decoded(commands: Commands, path: Path) -> Frames:
    done = commands.run("decode", path, "--json")
    assert (done.code, done.err) == (0, "")
    frames: Frames = defaultdict(list)
    clients: dict[int, int] = {}
    for line in done.out.splitlines():
        found = json.loads(line)
        if found["type"] == "connection":
            ports = {int(each) for each in re.findall(r":(\d+)", found["name"])}
            (clients[found["connection"]],) = ports - {SERVER[1]}
            continue
        assert found["type"] == "frame", found
        fields: list[tuple[str, str]] = []
        for field in found["fields"]:
            name = slug(re.sub(r"^(?!Header\.).*\]\.", "", field["name"]).partition(".")[0])
            if name == "header" and fields and fields[-1][0] == name:
                fields[-1] = name, fields[-1][1] + field["hex"]  # one field in the dissector
            else:
                fields.append((name, field["hex"]))
        frames[clients[found["connection"]], found["from"] == "client"].append(fields)
    return frames


@pytest.mark.parametrize("segment_bytes_max", [1400, 13], ids=["whole", "in small segments"])
def test_the_dissector_and_decode_read_the_same_fields(
    traffic: RecordedTraffic, commands: Commands, tmp_path: Path, segment_bytes_max: int
) -> None:
    data = traffic.capture(segment_bytes_max=segment_bytes_max)
    path = tmp_path / "traffic.pcap"
    path.write_bytes(data)
    expected = decoded(commands, path)
    assert len(expected) == 2 * (2 * len(LAYOUTS) + 2)
    found = dissected(data)
    assert found.keys() == expected.keys()
    for key, frames in expected.items():
        for one, other in zip(found[key], frames, strict=True):
            assert one == other, key


def test_faults_are_shown(traffic: RecordedTraffic) -> None:
    assert "Malformed" not in tshark(traffic.capture(), "-V")
    with_checksum = 3  # the sender of Rheos v2
    damaged = bytearray()
    for number, from_client, data in traffic.chunks:
        if number == with_checksum and from_client:
            damaged += data
    damaged[-1] ^= 1
    shown = tshark(pcap(session(bytes(damaged), b"")), "-V")
    assert "computed 0x" in shown
    herald = bytes.fromhex("feca 77 00000000")
    assert "no frame can be read here" in tshark(pcap(session(herald, b"")), "-V")


def test_datagrams_of_herald_are_shown() -> None:
    data = bytes.fromhex("feca 20 00000000")
    packets = [udp(("127.0.0.1", 5000), ("127.0.0.1", 7000), data)]
    assert "OpCode: PING (32)" in tshark(pcap(packets), "-V")


def test_the_dissector_is_that_of_the_layouts() -> None:
    assert DISSECTOR.read_text() == dissector(), "run make dissector"
    assert list(LAYOUTS) == [protocol.label for protocol in PROTOCOLS]

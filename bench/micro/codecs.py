"""Frames per second of scan, encode and both, of the plain codec and of a copy of the bytes.

    python -m bench.micro.codecs [--quick] [--save]

Every figure is the best of several rounds on one buffer of publish frames, as a broker's read
would hold it. "Both" scans the buffer and encodes every row for subscribers of the same protocol.
The plain codec decodes the same frames one by one and encodes one delivery for each. The bare copy
is `bytes(buffer)`: the same bytes copied once into a new object, as an encoder does.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.results import save
from penstock._kernels import batch as batches
from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.topics import TopicTable
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.decoder import Decoder
from penstock.wire.rheos import OpCode

BUFFER_BYTES = 256 * 1024
VALUE_BYTES = (16, 100, 1000)
TOPIC = "sensors/17/temp"
CHANNEL = 17
SENDER = batches.Sender(bytes(range(16)), 1000)
TIMESTAMP_US = 1_700_000_000_000_000

# Targets of scan+encode at 100 bytes: the smallest speed in times the plain codec, and the largest
# cost in bare copies.
TIMES_PLAIN_MIN = 200
COPIES_MAX = {
    HERALD: 5.2,
    RHEOS1: 4.8,
    RHEOS2: 6.4,
    FLEXIMQ: 5.1,
    LAMAMQ: 4.9,
}


class Case:
    """One protocol with one size of value: a buffer of frames and the functions to measure."""

    def __init__(self, protocol: Protocol, value_bytes: int) -> None:
        self.protocol = protocol
        self.value = bytes(n % 251 for n in range(value_bytes))
        frame = self.publish_frame()
        self.frames = BUFFER_BYTES // len(frame)
        self.buffer = bytearray(frame * self.frames)
        self.batch = batches.Batch()
        self.batch.timestamp_us = TIMESTAMP_US
        self.topics = TopicTable()
        self.topics.bind_channel(CHANNEL, TOPIC)
        self.headers = fleximq_kernel.HeaderCache(fleximq.publication)

    def publish_frame(self) -> bytes:
        match self.protocol.label:
            case "rheos1":
                name = TOPIC.encode()
                return rheos1.encode(rheos1.Request(SENDER.uuid, OpCode.PUBLISH, name, self.value))
            case "rheos2":
                name = TOPIC.encode()
                return rheos2.encode(rheos2.Event(SENDER.uuid, OpCode.PUBLISH, name, self.value))
            case "fleximq":
                return fleximq.encode(self.fleximq_message())
            case "herald":
                return herald.encode(herald.Publish(CHANNEL, self.value))
            case "lamamq":
                return lamamq.encode(lamamq.Push(7, self.lamamq_message()))

    def fleximq_message(self) -> fleximq.Message:
        header = fleximq.Header(topic=TOPIC)
        payload = fleximq.wrap_value(self.value)
        return fleximq.Message(fleximq.MessageType.PUB, SENDER.number, header, payload)

    def lamamq_message(self) -> lamamq.Message:
        headers = (("content-type", b"application/octet-stream"), ("site", b"north"))
        return lamamq.Message(1_700_000_000, TOPIC, headers, lamamq.PayloadType.BUFFER, self.value)

    def scan(self) -> int:
        batch, topics, buffer = self.batch, self.topics, self.buffer
        match self.protocol.label:
            case "rheos1":
                return rheos1_kernel.scan(buffer, 0, batch, topics, SENDER)
            case "rheos2":
                return rheos2_kernel.scan(buffer, 0, batch, topics, SENDER)
            case "fleximq":
                return fleximq_kernel.scan(buffer, 0, batch, topics, SENDER, headers=self.headers)
            case "herald":
                return herald_kernel.scan(buffer, 0, batch, topics, SENDER, order="little")
            case "lamamq":
                return lamamq_kernel.scan(buffer, 0, batch, topics, SENDER, order="big")

    def encode(self) -> bytes:
        batch, topics = self.batch, self.topics
        match self.protocol.label:
            case "rheos1":
                return rheos1_kernel.encode(batch, topics)
            case "rheos2":
                return rheos2_kernel.encode(batch, topics)
            case "fleximq":
                return fleximq_kernel.encode(batch, topics)
            case "herald":
                return herald_kernel.encode(batch, topics, order="little")
            case "lamamq":
                return lamamq_kernel.encode(batch, topics, order="big", first_message_id=1)

    def scan_and_encode(self) -> bytes:
        self.scan()
        return self.encode()

    def plain(self) -> bytes:
        decoder = self.plain_decoder()
        decoder.feed(self.buffer)
        deliver = self.plain_delivery()
        return b"".join([deliver(packet) for packet in decoder])

    def plain_decoder(self) -> Decoder[Any]:
        match self.protocol.label:
            case "rheos1":
                return rheos1.BrokerDecoder()
            case "rheos2":
                return rheos2.BrokerDecoder()
            case "fleximq":
                return fleximq.BrokerDecoder()
            case "herald":
                return herald.Decoder()
            case "lamamq":
                decoder = lamamq.BrokerDecoder()
                decoder.feed(lamamq.encode(lamamq.Authentication("bench", b"key")))
                decoder.feed(lamamq.encode(lamamq.VersionChoice(1, 0)))
                list(decoder)
                return decoder

    def plain_delivery(self) -> Callable[[Any], bytes]:
        match self.protocol.label:
            case "rheos1":
                return lambda packet: rheos1.encode(
                    rheos1.Response(packet.client_id, packet.payload)
                )
            case "rheos2":
                return rheos2.encode
            case "fleximq":
                return fleximq.encode
            case "herald":
                return lambda packet: herald.encode(
                    herald.Message(packet.channel, TIMESTAMP_US, packet.message)
                )
            case "lamamq":
                return lambda packet: lamamq.encode(
                    lamamq.Forward(lamamq.BROKER_ID_BIT | 1, packet.message)
                )

    def copy(self) -> bytes:
        return bytes(self.buffer)


def best_seconds(work: Callable[[], object], *, rounds: int, calls: int) -> float:
    """Return the shortest time of one call, over `rounds` rounds of `calls` calls."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def measure(case: Case, *, rounds: int) -> dict[str, float]:
    """Return frames per second of each way, and the two ratios that have targets."""
    if case.scan() != len(case.buffer) or len(case.batch) != case.frames:
        raise AssertionError(f"the scan of {case.protocol.label} did not take the whole buffer")
    ways = {"copy": case.copy, "scan": case.scan, "encode": case.encode}
    ways["both"] = case.scan_and_encode
    # Rounds alternate, so that load from other processes affects all ways alike.
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, work in ways.items():
            seconds[way] = min(seconds[way], best_seconds(work, rounds=3, calls=5))
    seconds["plain"] = best_seconds(case.plain, rounds=max(2, rounds // 10), calls=1)
    rates = {way: case.frames / taken for way, taken in seconds.items()}
    rates["times_plain"] = seconds["plain"] / seconds["both"]
    rates["copies"] = seconds["both"] / seconds["copy"]
    return rates


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures at 100 bytes that miss their targets."""
    short = []
    for row in results:
        if row["value_bytes"] != 100:
            continue
        protocol = PROTOCOLS[row["protocol"]]
        if row["times_plain"] < TIMES_PLAIN_MIN:
            short.append(f"{protocol.label}: {row['times_plain']:.1f} times the plain codec")
        if row["copies"] > COPIES_MAX[protocol]:
            short.append(f"{protocol.label}: the cost of {row['copies']:.1f} bare copies")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    results = []
    for value_bytes in VALUE_BYTES:
        for protocol in PROTOCOLS:
            rates = measure(Case(protocol, value_bytes), rounds=1 if arguments.quick else 40)
            results.append({"protocol": protocol.label, "value_bytes": value_bytes, **rates})
    if arguments.json:
        print(json.dumps(results))
    else:
        print_table(results)
    if arguments.save:
        print(f"saved to {save('codecs', results)}")
    short = misses(results)
    for miss in short:
        print(f"below target at 100 bytes: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


def print_table(results: list[dict[str, Any]]) -> None:
    print("million frames a second; best of several, one run")
    print(
        f"{'bytes':>6} {'protocol':<9} {'copy':>8} {'scan':>8} {'encode':>8} {'both':>8}"
        f" {'plain':>8}"
        f"   {'both/plain':>10} {'copies':>7}"
    )
    for row in results:
        rates = " ".join(
            f"{row[way] / 1e6:>8.2f}" for way in ("copy", "scan", "encode", "both", "plain")
        )
        print(
            f"{row['value_bytes']:>6} {row['protocol']:<9} {rates}"
            f"   {row['times_plain']:>9.0f}x {row['copies']:>7.1f}"
        )


if __name__ == "__main__":
    sys.exit(main())

"""Attacks on what the broker keeps for a client: positions, last messages, groups, services."""

import contextlib
from typing import Final

import pyarrow as pa

from penstock.conform.fleximq import encoding as fx
from penstock.conform.fleximq.messagepack import pack
from penstock.conform.herald import encoding as hb
from penstock.flight.client import FlightClient
from tests.attack.attacker import KIB, MIB, Attacker, attack

__all__ = [
    "ask_for_last_messages",
    "crowd_groups",
    "name_partitions_that_do_not_exist",
    "serve_and_withdraw",
    "stage_words_of_a_dictionary",
]

PARTITIONS: Final = ",".join(f"{number}:0" for number in range(1000, 3000))


@attack
def name_partitions_that_do_not_exist(attacker: Attacker) -> None:
    """Positions in thousands of partitions, beside herald clients whose positions are noted."""
    attacker.join_herald(hb.handshake_sub(bytes(range(200))))
    while attacker.going:
        peer, number = attacker.join_fleximq(token=attacker.target.token)
        for index in range(50):
            topic = fx.topic(f"attack/{index}@#{PARTITIONS}")
            peer.sendall(fx.frame(fx.SUB, number, topic))
            attacker.acted()
        attacker.drain(peer, 0.2)
        peer.close()


@attack
def ask_for_last_messages(attacker: Attacker) -> None:
    """The last message of each topic, beside thousands of patterns one of which is behind."""
    peer, number = attacker.join_fleximq(token=attacker.target.token)
    behind, reader = attacker.join_fleximq(token=attacker.target.token)
    for index in range(3000):
        peer.sendall(fx.frame(fx.SUB, number, fx.topic(f"attack/+/{index}/#")))
    peer.sendall(fx.frame(fx.SUB, number, fx.topic("attack/#@earliest")))
    behind.sendall(fx.frame(fx.SUB, reader, fx.topic("attack/#@earliest")))
    while attacker.going:
        peer.sendall(fx.frame(fx.PUB, number, fx.topic("attack/last/0"), pack(bytes(KIB))))
        for pattern in ("attack/+/+@last", "attack/+/last@last", "attack/last/#@last"):
            peer.sendall(fx.frame(fx.SUB, number, fx.topic(pattern)))
            name = pattern.partition("@")[0]
            peer.sendall(fx.frame(fx.UNSUB, number, fx.topic(name)))
        attacker.acted(7)
        attacker.drain(peer, 0.1)


@attack
def crowd_groups(attacker: Attacker) -> None:
    """Many members of a group, clients in many groups, and members that refuse all messages."""
    while attacker.going:
        peers = []
        for _ in range(20):
            with contextlib.suppress(OSError):
                peers.append(attacker.join_fleximq(token=attacker.target.token))
        for peer, number in peers:
            group = fx.topic("attack/crowd/#@group=attack.crowd,earliest")
            peer.sendall(fx.frame(fx.SUB, number, group))
        if not peers:
            break
        peer, number = peers[0]
        for index in range(100):
            name = fx.topic(f"attack/crowd/{index}@group=attack.own-{attacker.number}-{index}")
            peer.sendall(fx.frame(fx.SUB, number, name))
            name = fx.topic(f"attack/crowd/{index % 10}")
            peer.sendall(fx.frame(fx.PUB, number, name, pack(bytes(KIB))))
        for each, client in peers:
            for delivery in range(50):
                header = fx.routing((1, "/nack")) | fx.request(str(delivery))
                with contextlib.suppress(OSError):
                    each.sendall(fx.frame(fx.REQ, client, header, pack([delivery, 1000])))
        attacker.acted(200 + 51 * len(peers))
        attacker.drain(peer, 0.3)
        for each, _ in peers:
            each.close()


@attack
def serve_and_withdraw(attacker: Attacker) -> None:
    """Services that are registered and withdrawn, each with a path of its own."""
    peer, number = attacker.join_fleximq(token=attacker.target.token)
    while attacker.going:
        for _ in range(200):
            path = f"/attack/{attacker.chance.getrandbits(60)}" + "x" * 900
            for target in ("/serve", "/unserve"):
                header = fx.routing((1, target)) | fx.request("s")
                peer.sendall(fx.frame(fx.REQ, number, header, pack(path)))
            attacker.acted(2)
        attacker.drain(peer, 0.05)


@attack
def stage_words_of_a_dictionary(attacker: Attacker) -> None:
    """Rows without values, each of whose keys and headers is a word of a megabyte."""
    rows = 40
    indices = pa.array([0] * rows, pa.int32())
    word = pa.DictionaryArray.from_arrays(indices, pa.array([bytes(MIB)]))
    names = pa.DictionaryArray.from_arrays(indices, pa.array(["h"]))
    words = pa.DictionaryArray.from_arrays(indices, pa.array([bytes(MIB // 2)]))
    entries = pa.StructArray.from_arrays([names, words], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), entries)
    batch = pa.record_batch(
        {"topic": ["attack/words"] * rows, "value": [b""] * rows, "key": word, "headers": headers}
    )
    with FlightClient(attacker.target.flight, token=attacker.target.token) as client:
        while attacker.going:
            writer = f"attacker-{attacker.number}"
            with contextlib.suppress(Exception):  # refused in most cases
                client.stage([batch], writer=writer, epoch=attacker.epoch, partition=0)
                client.publish_epoch(writer, attacker.epoch, [0])
            attacker.epoch += 1
            attacker.acted(2)

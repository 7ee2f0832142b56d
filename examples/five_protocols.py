"""Print one message as each of the five protocols sends it and receives it from the others.

python examples/five_protocols.py
"""

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels import herald as herald_kernel
from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.wire import fleximq, herald, lamamq, rheos1, rheos2
from penstock.wire.detect import detect
from penstock.wire.rheos import OpCode

CLIENT = bytes.fromhex("00112233445566778899aabbccddeeff")
SENDER = Sender(CLIENT, 1000)
TOPIC, CHANNEL, VALUE = "channel/7", 7, b"21.5"

topics, batch = TopicTable(), Batch()
topics.bind_channel(CHANNEL, TOPIC)
batch.timestamp_us = 1_700_000_000_000_000
headers = fleximq_kernel.HeaderCache(fleximq.publication)

pub = fleximq.Message(
    fleximq.MessageType.PUB, 1000, fleximq.Header(topic=TOPIC), fleximq.wrap_value(VALUE)
)
push = lamamq.Message(1_700_000_000, TOPIC, (), lamamq.PayloadType.BUFFER, VALUE)
sent = {
    "rheos1": rheos1.encode(rheos1.Request(CLIENT, OpCode.PUBLISH, TOPIC.encode(), VALUE)),
    "rheos2": rheos2.encode(rheos2.Event(CLIENT, OpCode.PUBLISH, TOPIC.encode(), VALUE)),
    "fleximq": fleximq.encode(pub),
    "herald": herald.encode(herald.Publish(CHANNEL, VALUE)),
    "lamamq": lamamq.encode(lamamq.Push(1, push)),
}
scans = {
    "rheos1": lambda data: rheos1_kernel.scan(data, 0, batch, topics, SENDER),
    "rheos2": lambda data: rheos2_kernel.scan(data, 0, batch, topics, SENDER),
    "fleximq": lambda data: fleximq_kernel.scan(data, 0, batch, topics, SENDER, headers=headers),
    "herald": lambda data: herald_kernel.scan(data, 0, batch, topics, SENDER, order="little"),
    "lamamq": lambda data: lamamq_kernel.scan(data, 0, batch, topics, SENDER, order="big"),
}
encoders = {
    "rheos1": lambda: rheos1_kernel.encode(batch, topics),
    "rheos2": lambda: rheos2_kernel.encode(batch, topics),
    "fleximq": lambda: fleximq_kernel.encode(batch, topics),
    "herald": lambda: herald_kernel.encode(batch, topics, order="little"),
    "lamamq": lambda: lamamq_kernel.encode(batch, topics, order="big", first_message_id=1),
}

print(f"{VALUE!r} to {TOPIC!r}, as each protocol sends it\n")
for name, frame in sent.items():
    print(f"  {name:<8} {frame.hex(' ', -4)}")
print("\nand as subscribers of each receive it\n")
for source, frame in sent.items():
    scans[source](frame)
    for target, encode in encoders.items():
        print(f"  {source:<8} to {target:<8} {encode().hex(' ', -4)}")
print("\nThe first bytes of a connection identify its protocol:\n")
for first in ("feca01", "cafe01", "010000000000", "0000000003", "0003000000", sent["rheos2"].hex()):
    found = detect(bytes.fromhex(first))
    print(f"  {first[:24]:<24} {found.protocol.label}, {found.order}-endian" if found else first)

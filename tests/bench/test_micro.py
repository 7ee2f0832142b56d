"""The benchmark runs one pass, and its bars hold by a wide margin even on a busy machine."""

from bench.micro.codecs import Case, measure
from penstock.protocols import PROTOCOLS


def test_every_protocol_is_measured_and_far_ahead_of_the_plain_codec() -> None:
    for protocol in PROTOCOLS:
        rates = measure(Case(protocol, 100), rounds=1)
        assert set(rates) == {"copy", "scan", "encode", "both", "plain", "times_plain", "copies"}
        assert rates["times_plain"] > 15

"""fleximq frames, from the encoder of the conformance cases."""

from penstock.conform.fleximq.encoding import *  # noqa: F403

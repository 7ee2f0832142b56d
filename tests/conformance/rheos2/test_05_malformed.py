"""The cases of v1, asked in v2's packets: the versions differ in bytes, not in meaning."""

from tests.conformance.rheos1.test_05_malformed import *  # noqa: F403

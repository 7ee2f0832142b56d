"""The cases of v1, asked in v2's packets: the versions differ in bytes, not in meaning."""

from tests.conformance.rheos1.test_01_create import *  # noqa: F403

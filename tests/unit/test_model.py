"""Topic names and message ids: what every layer relies on."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import (
    NO_MESSAGE_OFFSET,
    binary_topic_name,
    is_publishable,
    message_id,
    split_message_id,
    topic_name_from_binary,
)
from penstock.protocols import PROTOCOLS


def test_protocols_have_the_labels_of_the_record_schema() -> None:
    assert [protocol.label for protocol in PROTOCOLS] == [
        "rheos1",
        "rheos2",
        "fleximq",
        "herald",
        "lamamq",
    ]


@pytest.mark.parametrize(
    ("binary", "name"),
    [
        (b"sensors/1", "sensors/1"),
        ("é/ü".encode(), "é/ü"),
        (b"a\xff", "a%FF"),
        (b"\xc3", "%C3"),
        (b"\xed\xa0\x80", "%ED%A0%80"),  # a surrogate is not UTF-8
        (b"50%", "50%"),
        (b"%41", "%41"),
        (b"%ff", "%ff"),
        (b"%FF", "%25FF"),
        (b"%25", "%2525"),
        (b"%\xff", "%%FF"),
        (b"", ""),
    ],
)
def test_binary_names_have_one_canonical_name_and_come_back(binary: bytes, name: str) -> None:
    assert topic_name_from_binary(binary) == name
    assert binary_topic_name(name) == binary


@given(st.binary(max_size=30) | st.text("%25FfC3é", max_size=12).map(str.encode))
def test_every_byte_string_comes_back_unchanged(binary: bytes) -> None:
    assert binary_topic_name(topic_name_from_binary(binary)) == binary


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_two_byte_strings_never_share_a_name(one: bytes, other: bytes) -> None:
    assert (topic_name_from_binary(one) == topic_name_from_binary(other)) is (one == other)


@given(st.text("ab/.é", max_size=12))
def test_plain_names_are_the_same_bytes_everywhere(name: str) -> None:
    assert binary_topic_name(name) == name.encode()


def test_a_name_no_byte_string_has_stands_for_itself() -> None:
    assert binary_topic_name("%C3%A9") == b"%C3%A9"
    assert binary_topic_name("x%25") == b"x%25"


@pytest.mark.parametrize("name", ["a", "a/b", "a.b", "/", "a//b", "a+b/c#", "temp>5", "*a"])
def test_these_can_be_published_to(name: str) -> None:
    assert is_publishable(name)


@pytest.mark.parametrize("name", ["", "+", "*", "#", ">", "a/+", "a.*", "a/#/b", "x.>", "+/a"])
def test_these_cannot(name: str) -> None:
    assert not is_publishable(name)


def test_a_message_id_is_a_uuid_of_version_8() -> None:
    identifier = message_id(0xA1B2C3D4E5F6, partition=0x123, offset=0x0123456789ABCDEF)
    assert identifier.hex(" ", -4) == "a1b2c3d4 e5f68123 81234567 89abcdef"
    parsed = uuid.UUID(bytes=identifier)
    assert parsed.version == 8
    assert parsed.variant == uuid.RFC_4122


@given(st.integers(0, 2**48 - 1), st.integers(0, 4095), st.integers(0, NO_MESSAGE_OFFSET))
def test_a_message_id_splits_into_its_parts(log_id: int, partition: int, offset: int) -> None:
    parts = split_message_id(message_id(log_id, partition=partition, offset=offset))
    assert parts == (log_id, partition, offset)


@pytest.mark.parametrize(
    "parts", [(2**48, 0, 0), (0, 4096, 0), (0, 0, 2**62), (-1, 0, 0), (0, -1, 0)]
)
def test_parts_that_do_not_fit_are_refused(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no message id"):
        message_id(parts[0], partition=parts[1], offset=parts[2])


@pytest.mark.parametrize(
    "identifier",
    [b"", bytes(16), uuid.UUID("6f1f3a52-0c1b-4f6e-9a59-3f4b1d2c5e70").bytes, bytes(17)],
)
def test_other_uuids_are_no_message_ids(identifier: bytes) -> None:
    with pytest.raises(ValueError, match="not a message id"):
        split_message_id(identifier)

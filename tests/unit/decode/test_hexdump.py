"""Hex in the spellings that tools have."""

import shutil
import subprocess

import pytest

from penstock.decode.hexdump import NotHex, from_hex, looks_like_hex

DATA = bytes(range(48)) + bytes(64) + b"  |text|  " + bytes(range(250, 256))


@pytest.mark.parametrize(
    "text",
    [
        "fe ca 20 00",
        "feca2000",
        "FE CA\n20 00\n",
        "fe:ca:20:00",
        "0xfe, 0xca, 0x20, 0x00",
        "fe ca  # the magic\n20 00",
        "00000000: feca 2000                                ....\n",
        "00000000  fe ca 20 00                                       |.. .|\n00000004\n",
    ],
)
def test_every_spelling_gives_the_bytes(text: str) -> None:
    assert looks_like_hex(text.encode())
    assert from_hex(text) == b"\xfe\xca\x20\x00"


@pytest.mark.parametrize(
    "command", [["xxd"], ["xxd", "-g1", "-u"], ["xxd", "-p"], ["hexdump", "-C"], ["od", "-An", "-tx1", "-v"]],
    ids=" ".join,
)  # fmt: skip
def test_what_the_tools_print_is_read(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    text = subprocess.run(command, input=DATA, capture_output=True, check=True, timeout=10).stdout  # noqa: S603
    assert looks_like_hex(text)
    assert from_hex(text.decode()) == DATA


def test_a_star_of_hexdump_stands_for_equal_lines() -> None:
    row = " ".join(["00"] * 16).replace(" 00" * 8, " 00" * 8)
    text = f"00000000  {row}  |................|\n*\n00000040  ff  |.|\n00000041\n"
    assert from_hex(text) == bytes(64) + b"\xff"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("fe\nxy", 2, "'x' is no hexadecimal digit"),
        ("fe c", 1, "an odd number of digits"),
        ("00000000: feca\nwhat", 2, "no line of xxd"),
        ("00000000  fe ca  |..|\n00000009  20  | |\n", 2, "its offset is 9, expected 2"),
        ("*\n00000010  20  | |\n", 2, "a * with no line before it"),
        ("00000000  " + "00 " * 16 + " |................|\n*\nffffffffffff\n", 3, "more than"),
    ],
)
def test_what_is_no_hex_names_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(NotHex) as raised:
        from_hex(text)
    assert raised.value.line == line
    assert said in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"\xfe\xca\x20\x00", b"\x00\x00\x00\x00\x01a", b"  \n"])
def test_raw_bytes_do_not_look_like_hex(data: bytes) -> None:
    assert not looks_like_hex(data)

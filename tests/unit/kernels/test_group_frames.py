"""Frames grouped for datagrams, beside a plain walk over them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._kernels.herald import group_frames
from penstock.model import ByteOrder
from tests.support.herald_bytes import frame


def plain_groups(
    sizes: list[int], together_max: int, alone_max: int
) -> tuple[list[tuple[int, int]], int]:
    groups: list[tuple[int, int]] = []
    at = too_large = 0
    joins = False  # whether the next frame may join the last group
    for size in sizes:
        if size > alone_max:
            too_large += 1
            joins = False
        elif joins and at + size - groups[-1][0] <= together_max:
            groups[-1] = (groups[-1][0], at + size)
        else:
            groups.append((at, at + size))
            joins = True
        at += size
    return groups, too_large


@given(
    st.lists(st.integers(0, 60), max_size=30),
    st.integers(7, 90),
    st.integers(40, 70),
    st.sampled_from(["little", "big"]),
)
def test_groups_are_those_of_a_plain_walk(
    bodies: list[int], together_max: int, alone_max: int, order: ByteOrder
) -> None:
    mark = "<" if order == "little" else ">"
    data = b"".join(frame(0x13, bytes(size), order=mark) for size in bodies)
    found = group_frames(data, order=order, together_max=together_max, alone_max=alone_max)
    assert found == plain_groups([7 + size for size in bodies], together_max, alone_max)


def test_what_is_not_whole_frames_is_refused() -> None:
    whole = frame(0x13, b"abc")
    for cut in range(1, len(whole)):
        with pytest.raises(ValueError, match="frame"):
            group_frames(whole + whole[:cut], order="little", together_max=100, alone_max=100)
    assert group_frames(b"", order="little", together_max=100, alone_max=100) == ([], 0)

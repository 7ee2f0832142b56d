"""Acknowledgments in bulk are those of the plain encoders, one by one."""

import pytest

from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock.model import NO_MESSAGE_OFFSET, message_id
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.wire import lamamq, rheos1, rheos2
from penstock.wire.rheos import AckCode
from tests.support.agreement import kernel_scan
from tests.support.publishes import publish

LOG_ID = 0xA1B2C3D4E5F6


@pytest.mark.parametrize("first", [0, 1, 255, 2**32 - 2, 2**61])
def test_rheos_acknowledges_consecutive_offsets(first: int) -> None:
    ids = [message_id(LOG_ID, partition=5, offset=first + n) for n in range(7)]
    found = rheos1_kernel.acknowledge(7, log_id=LOG_ID, partition=5, first_offset=first)
    assert found == b"".join(
        rheos1.encode(rheos1.Acknowledgment(one, AckCode.SUCCESS)) for one in ids
    )
    found = rheos2_kernel.acknowledge(7, log_id=LOG_ID, partition=5, first_offset=first)
    assert found == b"".join(
        rheos2.encode(rheos2.Acknowledgment(AckCode.SUCCESS, one)) for one in ids
    )


def test_rheos_acknowledges_nothing_with_nothing() -> None:
    for kernel in (rheos1_kernel, rheos2_kernel):
        assert kernel.acknowledge(0, log_id=1, partition=0, first_offset=0) == b""


def test_an_id_that_does_not_fit_is_refused() -> None:
    for kernel in (rheos1_kernel, rheos2_kernel):
        with pytest.raises(ValueError, match="no message id"):
            kernel.acknowledge(1, log_id=2**48, partition=0, first_offset=0)
        with pytest.raises(ValueError, match="no message id"):
            kernel.acknowledge(1, log_id=1, partition=4096, first_offset=0)
        with pytest.raises(ValueError, match="no message id"):
            kernel.acknowledge(2, log_id=1, partition=0, first_offset=NO_MESSAGE_OFFSET)


@pytest.mark.parametrize("order", ["little", "big"])
def test_lamamq_answers_each_push_by_its_id(order: str) -> None:
    ids = [0, 1, 0xDEADBEEF, 0xFFFFFFFF]
    frames = [publish(LAMAMQ, order, message_id=one) for one in ids]  # type: ignore[arg-type]
    batch, _, _ = kernel_scan(LAMAMQ, b"".join(frames), order)  # type: ignore[arg-type]
    assert lamamq_kernel.acknowledge(batch) == b"".join(
        lamamq.encode(lamamq.Answer(one, None), order=order)  # type: ignore[arg-type]
        for one in ids
    )


def test_only_lamamq_pushes_have_ids_to_answer() -> None:
    batch, _, _ = kernel_scan(HERALD, publish(HERALD, "little"), "little")
    with pytest.raises(ValueError, match="LamaMQ"):
        lamamq_kernel.acknowledge(batch)

"""CRC32C over several buffers as if they were one: what guards the groups of the log."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t state, const uint8_t *p, size_t n)
    uint32_t crc32c_by_tables(uint32_t state, const uint8_t *p, size_t n)

crc32c_prepare()


def crc32c(object buffers not None):
    cdef uint32_t state = 0xFFFFFFFF
    cdef Py_buffer view
    for buffer in buffers:
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        with nogil:
            state = crc32c_extend(state, <const uint8_t *>view.buf, <size_t>view.len)
        PyBuffer_Release(&view)
    return <uint32_t>~state


def crc32c_tables(const uint8_t[::1] data not None):
    cdef uint32_t state = 0
    with nogil:
        state = crc32c_by_tables(
            0xFFFFFFFF, &data[0] if data.shape[0] else NULL, <size_t>data.shape[0]
        )
    return <uint32_t>~state

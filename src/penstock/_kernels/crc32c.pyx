"""CRC32C over several buffers as if they were one; it protects the groups of the log."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc

cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t state, const uint8_t *p, size_t n)
    uint32_t crc32c_by_tables(uint32_t state, const uint8_t *p, size_t n)

cdef enum:
    SHORT = 16384                  # below this, releasing the GIL costs more than it gains

crc32c_prepare()


def crc32c(object buffers not None):
    cdef list parts = list(buffers)
    cdef Py_ssize_t count = len(parts), held = 0, index
    cdef size_t size = 0
    cdef uint32_t state = 0xFFFFFFFF
    cdef Py_buffer *views = <Py_buffer *>malloc((count + 1) * sizeof(Py_buffer))
    if not views:
        raise MemoryError
    try:
        for part in parts:
            PyObject_GetBuffer(part, &views[held], PyBUF_SIMPLE)
            size += <size_t>views[held].len
            held += 1
        if size <= SHORT:
            state = extend(views, count, state)
        else:
            # Released once for all buffers: taking the GIL back may take long.
            with nogil:
                state = extend(views, count, state)
    finally:
        for index in range(held):
            PyBuffer_Release(&views[index])
        free(views)
    return <uint32_t>~state


cdef uint32_t extend(Py_buffer *views, Py_ssize_t count, uint32_t state) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        state = crc32c_extend(state, <const uint8_t *>views[index].buf, <size_t>views[index].len)
    return state


def crc32c_tables(const uint8_t[::1] data not None):
    cdef uint32_t state = 0
    with nogil:
        state = crc32c_by_tables(
            0xFFFFFFFF, &data[0] if data.shape[0] else NULL, <size_t>data.shape[0]
        )
    return <uint32_t>~state

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

cdef struct Piece:
    Py_ssize_t start
    Py_ssize_t size
    uint32_t expected

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


def crc32c_each(object buffers not None):
    cdef list parts = list(buffers)
    cdef Py_ssize_t count = len(parts), held = 0, index
    cdef size_t size = 0
    cdef uint32_t *found = NULL
    cdef Py_buffer *views = <Py_buffer *>malloc((count + 1) * sizeof(Py_buffer))
    if not views:
        raise MemoryError
    try:
        found = <uint32_t *>malloc((count + 1) * sizeof(uint32_t))
        if not found:
            raise MemoryError
        for part in parts:
            PyObject_GetBuffer(part, &views[held], PyBUF_SIMPLE)
            size += <size_t>views[held].len
            held += 1
        if size <= SHORT:
            each_padded(views, count, found)
        else:
            with nogil:
                each_padded(views, count, found)
        return [found[index] for index in range(count)]
    finally:
        for index in range(held):
            PyBuffer_Release(&views[index])
        free(found)
        free(views)


cdef void each_padded(Py_buffer *views, Py_ssize_t count, uint32_t *found) noexcept nogil:
    cdef uint8_t[8] zeros = [0, 0, 0, 0, 0, 0, 0, 0]
    cdef Py_ssize_t index
    cdef uint32_t state
    for index in range(count):
        state = crc32c_extend(
            0xFFFFFFFF, <const uint8_t *>views[index].buf, <size_t>views[index].len
        )
        found[index] = ~crc32c_extend(state, zeros, <size_t>(-views[index].len & 7))


def check_buffers(
    const uint8_t[::1] data not None,
    tuple starts not None,
    Py_ssize_t end,
    tuple layout not None,
    tuple checksums not None,
    *,
    Py_ssize_t zeros,
):
    # Both dictionaries, the shared zeros, then the buffers with bytes of their own: every byte from
    # the first to `end` is in one of them.
    cdef Py_ssize_t topics = starts[0], senders = starts[1], record = starts[2], body = starts[3]
    cdef Py_ssize_t zeros_end = body + zeros, count = len(layout) // 2, own = 0, index
    cdef Py_ssize_t position = zeros_end, start, size
    cdef Piece *pieces = NULL
    cdef bint right = True
    if len(checksums) != count + 2:
        return False
    if not 0 <= topics <= senders <= record <= body <= zeros_end <= end <= data.shape[0]:
        return False
    pieces = <Piece *>malloc((count + 2) * sizeof(Piece))
    if not pieces:
        raise MemoryError
    try:
        pieces[0] = Piece(topics, senders - topics, checksums[0])
        pieces[1] = Piece(senders, record - senders, checksums[1])
        own = 2
        for index in range(count):
            start, size = layout[2 * index], layout[2 * index + 1]
            if size <= 0:
                if checksums[index + 2]:
                    return False
                continue
            size += -size & 7
            if start >= body and size <= zeros_end - start:
                start, size = body, zeros
            elif start == position and size <= end - start:
                position += size
            else:
                return False
            pieces[own] = Piece(start, size, checksums[index + 2])
            own += 1
        if position != end:
            return False
        if end - topics <= SHORT:
            right = pieces_right(&data[0], pieces, own, body)
        else:
            with nogil:
                right = pieces_right(&data[0], pieces, own, body)
        return right
    finally:
        free(pieces)


cdef bint pieces_right(
    const uint8_t *data, const Piece *pieces, Py_ssize_t count, Py_ssize_t body
) noexcept nogil:
    cdef Py_ssize_t index
    cdef uint32_t found, zeros = 0
    cdef bint zeros_known = False
    for index in range(count):
        if zeros_known and pieces[index].start == body:
            found = zeros
        else:
            found = ~crc32c_extend(
                0xFFFFFFFF, data + pieces[index].start, <size_t>pieces[index].size
            )
            if pieces[index].start == body:
                zeros, zeros_known = found, True
        if found != pieces[index].expected:
            return False
    return True


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

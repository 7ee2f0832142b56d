"""Encodes row groups of the log; see storage/arrow/format/segment.py for their bytes.

The columns of a row group are copied into one buffer if they are small: a commit of a few messages
has about twenty, and handling each in Python costs more than copying them all. If only the values
are large, the other columns are copied into two buffers, one before and one after the values.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock._kernels.block import Names

cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t state, const uint8_t *p, size_t n)

crc32c_prepare()

cdef enum:
    SHORT = 16384                  # below this, releasing the GIL costs more than it gains
    JOINED_BYTES_MAX = 65536       # greatest size of a body that is copied into one buffer
    BUFFERS = 45                   # of a record batch, in Arrow's flattened order
    VALUES = 5                     # index of the buffer with the messages' values
    NODES = 20                     # fields of a record batch, nested ones included
    CHECKSUM = 8                   # hexadecimal digits

# The texts of a record batch, in the order of their places.
cdef enum:
    BASE_OFFSET = 0
    COUNT = 1
    SYNCED = 2
    PREVIOUS = 3
    ZEROS = 4
    CHECKSUMS = 5
    CRC32C = 6
    PLACES = 7

cdef Py_ssize_t[PLACES] LENGTHS = [20, 10, 20, CHECKSUM, 10, CHECKSUM * (2 + BUFFERS), CHECKSUM]
cdef Py_ssize_t[3] HEADER_NODES = [8, 9, 10]
cdef Py_ssize_t[4] NULLABLE_NODES = [0, 14, 15, 16]
cdef bytes _DIGITS = b"0123456789abcdef"
cdef const uint8_t *DIGITS = <const uint8_t *>PyBytes_AS_STRING(_DIGITS)
cdef uint8_t[8] PADDING = [0, 0, 0, 0, 0, 0, 0, 0]


cdef struct Piece:
    const uint8_t *data            # NULL for zeros that buffers share
    size_t size
    size_t position                # in the body


cdef class MessageLayout:
    """The metadata of a message, and the positions in them of what differs between messages."""
    cdef bytes metadata
    cdef Py_ssize_t body_length, length, nodes, buffers
    cdef Py_ssize_t[PLACES] places
    cdef readonly bint has_texts   # whether it is a record batch

    def __init__(
        self,
        bytes metadata not None,
        *,
        Py_ssize_t body_length,
        Py_ssize_t length,
        Py_ssize_t nodes,
        Py_ssize_t buffers,
        tuple texts=(),
    ):
        cdef Py_ssize_t size = len(metadata), place, start, end
        cdef Py_ssize_t node_count = NODES if texts else 1, buffer_count = BUFFERS if texts else 3
        if texts and len(texts) != PLACES:
            raise ValueError(f"{len(texts)} texts of a record batch")
        for start, end in (
            (body_length, body_length + 8),
            (length, length + 8),
            (nodes, nodes + 16 * node_count),
            (buffers, buffers + 16 * buffer_count),
            *texts,
        ):
            if not 0 <= start <= end <= size:
                raise ValueError("a number is not inside the metadata")
        for place in range(len(texts)):
            start, end = texts[place]
            if end - start != LENGTHS[place]:
                raise ValueError(f"a text of {end - start} bytes, expected {LENGTHS[place]}")
            self.places[place] = start
        self.metadata = metadata
        self.has_texts = bool(texts)
        self.body_length, self.length = body_length, length
        self.nodes, self.buffers = nodes, buffers

    cdef void copy(self, uint8_t *out, uint64_t count, uint64_t body_length) noexcept:
        """Write the metadata with these numbers."""
        memcpy(out, PyBytes_AS_STRING(self.metadata), <size_t>PyBytes_GET_SIZE(self.metadata))
        put64(out + self.body_length, body_length)
        put64(out + self.length, count)


cdef inline void put64(uint8_t *out, uint64_t number) noexcept nogil:
    memcpy(out, &number, 8)


cdef inline void put_pair(uint8_t *out, uint64_t first, uint64_t second) noexcept nogil:
    put64(out, first)
    put64(out + 8, second)


cdef inline size_t padded(size_t size) noexcept nogil:
    return size + (-size & 7)


cdef void put_decimal(uint8_t *out, Py_ssize_t length, uint64_t number) noexcept nogil:
    while length:
        length -= 1
        out[length] = <uint8_t>(48 + number % 10)
        number //= 10


cdef void put_hex(uint8_t *out, uint32_t number) noexcept nogil:
    cdef int digit
    for digit in range(CHECKSUM):
        out[digit] = DIGITS[number >> (28 - 4 * digit) & 15]


def dictionary_message(MessageLayout layout not None, names not None):
    """Return the IPC message of a dictionary of names."""
    cdef Py_buffer ends, data
    cdef Py_ssize_t head = PyBytes_GET_SIZE(layout.metadata)
    cdef size_t ends_size, data_size
    cdef uint64_t count
    cdef bytes message
    cdef uint8_t *out
    if not isinstance(names, Names):
        names = Names.of(names)
    PyObject_GetBuffer(names.ends, &ends, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(names.data, &data, PyBUF_SIMPLE)
        try:
            if ends.len < 4 or ends.len % 4:
                raise ValueError("the ends of names are not 32-bit numbers")
            count = <uint64_t>ends.len // 4 - 1
            ends_size, data_size = padded(<size_t>ends.len), padded(<size_t>data.len)
            message = PyBytes_FromStringAndSize(
                NULL, head + <Py_ssize_t>ends_size + <Py_ssize_t>data_size
            )
            out = <uint8_t *>PyBytes_AS_STRING(message)
            layout.copy(out, count, ends_size + data_size)
            put_pair(out + layout.nodes, count, 0)
            put_pair(out + layout.buffers, 0, 0)
            put_pair(out + layout.buffers + 16, 0, <uint64_t>ends.len)
            put_pair(out + layout.buffers + 32, ends_size, <uint64_t>data.len)
            out += head
            memset(out + ends_size - 8, 0, 8)
            memcpy(out, ends.buf, <size_t>ends.len)
            out += ends_size
            if data_size:
                memset(out + data_size - 8, 0, 8)
                memcpy(out, data.buf, <size_t>data.len)
            return message
        finally:
            PyBuffer_Release(&data)
    finally:
        PyBuffer_Release(&ends)


cdef class RowGroupEncoder:
    """Encodes row groups with the layouts of their three messages."""
    cdef MessageLayout topics, senders, batch

    def __init__(
        self,
        MessageLayout topics not None,
        MessageLayout senders not None,
        MessageLayout batch not None,
    ):
        if topics.has_texts or senders.has_texts or not batch.has_texts:
            raise ValueError("expected the layouts of two dictionaries and of a record batch")
        self.topics, self.senders, self.batch = topics, senders, batch

    def encode(
        self,
        topics not None,
        senders not None,
        buffers not None,
        *,
        uint64_t base_offset,
        uint32_t count,
        uint32_t header_count,
        tuple null_counts not None,
        uint32_t previous,
        uint64_t synced,
    ):
        cdef Py_buffer[BUFFERS] views
        cdef Piece[BUFFERS] pieces
        cdef uint32_t[2 + BUFFERS] checksums
        cdef Py_ssize_t held = 0, index, metadata = PyBytes_GET_SIZE(self.batch.metadata)
        cdef size_t end, zeros = 0, size, front_size, apart = 0, apart_at
        cdef bint joined
        cdef bytes topic_message, sender_message, front
        cdef uint8_t *out
        cdef uint8_t *head
        cdef uint32_t crc
        cdef list found
        if len(buffers) != BUFFERS or len(null_counts) != 4:
            raise ValueError(f"{len(buffers)} buffers and {len(null_counts)} counts of nulls")
        topic_message = dictionary_message(self.topics, topics)
        sender_message = dictionary_message(self.senders, senders)
        try:
            for index, buffer in enumerate(buffers):
                pieces[index].data = NULL
                if isinstance(buffer, int):
                    pieces[index].size = <size_t>buffer
                    zeros = max(zeros, pieces[index].size)
                    continue
                PyObject_GetBuffer(buffer, &views[held], PyBUF_SIMPLE)
                held += 1
                pieces[index].data = <const uint8_t *>views[held - 1].buf
                pieces[index].size = <size_t>views[held - 1].len
                if not pieces[index].size:
                    pieces[index].data = PADDING      # no bytes, but a position of its own
            zeros = padded(zeros)
            end = zeros
            for index in range(BUFFERS):
                pieces[index].position = end if pieces[index].data else 0
                if pieces[index].data:
                    end += padded(pieces[index].size)
            front_size = <size_t>(
                PyBytes_GET_SIZE(topic_message) + PyBytes_GET_SIZE(sender_message) + metadata
            ) + zeros
            size = front_size - zeros + end
            if size > JOINED_BYTES_MAX and pieces[VALUES].data:
                apart = pieces[VALUES].size
            joined = size - apart <= JOINED_BYTES_MAX
            front = PyBytes_FromStringAndSize(
                NULL, <Py_ssize_t>(size - apart if joined else front_size)
            )
            out = <uint8_t *>PyBytes_AS_STRING(front)
            out = put_bytes(out, topic_message)
            out = put_bytes(out, sender_message)
            head = out
            self.batch.copy(head, count, end)
            self.put_nodes(head + self.batch.nodes, count, header_count, null_counts)
            for index in range(BUFFERS):
                put_pair(
                    head + self.batch.buffers + 16 * index,
                    pieces[index].position,
                    pieces[index].size,
                )
            out += metadata
            memset(out, 0, zeros)
            checksums[0] = sum_of(topic_message)
            checksums[1] = sum_of(sender_message)
            if size <= SHORT:
                sum_body(out, pieces, zeros, checksums + 2, joined, apart)
            else:
                with nogil:
                    sum_body(out, pieces, zeros, checksums + 2, joined, apart)
            crc = self.put_texts(
                head, metadata, base_offset, count, synced, previous, zeros, checksums
            )
        finally:
            for index in range(held):
                PyBuffer_Release(&views[index])
        if joined and not apart:
            return [front], size, crc
        if joined:
            apart_at = front_size - zeros + pieces[VALUES].position
            view = memoryview(front)
            return [view[:apart_at], buffers[VALUES], view[apart_at:]], size, crc
        found = [front]
        for index in range(BUFFERS):
            if pieces[index].data and pieces[index].size:
                found.append(buffers[index])
                if pieces[index].size & 7:
                    found.append(bytes(<Py_ssize_t>(-pieces[index].size & 7)))
        return found, size, crc

    cdef int put_nodes(
        self, uint8_t *out, uint32_t count, uint32_t header_count, tuple null_counts
    ) except -1:
        cdef Py_ssize_t index
        for index in range(NODES):
            put_pair(out + 16 * index, count, 0)
        for index in range(3):
            put64(out + 16 * HEADER_NODES[index], header_count)
        for index in range(4):
            put64(out + 16 * NULLABLE_NODES[index] + 8, <uint64_t>null_counts[index])
        return 0

    cdef uint32_t put_texts(
        self,
        uint8_t *head,
        Py_ssize_t metadata,
        uint64_t base_offset,
        uint64_t count,
        uint64_t synced,
        uint32_t previous,
        uint64_t zeros,
        const uint32_t *checksums,
    ) noexcept:
        """Write the texts of a record batch; return the checksum of its metadata."""
        cdef const Py_ssize_t *places = self.batch.places
        cdef Py_ssize_t index
        cdef uint32_t crc
        put_decimal(head + places[BASE_OFFSET], LENGTHS[BASE_OFFSET], base_offset)
        put_decimal(head + places[COUNT], LENGTHS[COUNT], count)
        put_decimal(head + places[SYNCED], LENGTHS[SYNCED], synced)
        put_hex(head + places[PREVIOUS], previous)
        put_decimal(head + places[ZEROS], LENGTHS[ZEROS], zeros)
        for index in range(2 + BUFFERS):
            put_hex(head + places[CHECKSUMS] + CHECKSUM * index, checksums[index])
        crc = ~crc32c_extend(0xFFFFFFFF, head, <size_t>metadata)
        put_hex(head + places[CRC32C], crc)
        return crc


cdef uint8_t *put_bytes(uint8_t *out, bytes data) noexcept:
    memcpy(out, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))
    return out + PyBytes_GET_SIZE(data)


cdef uint32_t sum_of(bytes message) noexcept:
    return ~crc32c_extend(
        0xFFFFFFFF,
        <const uint8_t *>PyBytes_AS_STRING(message),
        <size_t>PyBytes_GET_SIZE(message),
    )


cdef void sum_body(
    uint8_t *body, const Piece *pieces, size_t zeros, uint32_t *checksums, bint joined, size_t apart
) noexcept nogil:
    """Compute the checksum of each buffer, padded; copy them to their places if `joined`.

    Values of `apart` bytes are written from their own buffer: only their padding is copied.
    """
    cdef uint32_t of_zeros = ~crc32c_extend(0xFFFFFFFF, body, zeros), state
    cdef Py_ssize_t index
    cdef size_t size
    cdef uint8_t *out
    for index in range(BUFFERS):
        size = pieces[index].size
        if not size:
            checksums[index] = 0
        elif not pieces[index].data:
            checksums[index] = of_zeros
        else:
            state = crc32c_extend(0xFFFFFFFF, pieces[index].data, size)
            checksums[index] = ~crc32c_extend(state, PADDING, -size & 7)
            if joined:
                out = body + pieces[index].position
                if apart and index >= VALUES:
                    out -= apart
                if not apart or index != VALUES:
                    memcpy(out, pieces[index].data, size)
                memset(out + size, 0, -size & 7)

"""A Delivery: encodes rows of a batch into frames for one audience.

Every encoder works in two passes without the GIL: `measure` sums up the bytes, `write` fills a
bytes object of exactly that size, which all connections of the audience then share. If the batch
lends its buffer and has large values, `write` fills in only what is between them: the frames are a
`Gathered`, which refers to the large values where they were received.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from penstock._kernels.batch cimport HIDDEN, SHORT_BYTES, SHORT_ROWS, STORED
from penstock._kernels.gathered cimport Gathered

from penstock.errors import ValueNotDeliverable
from penstock.limits import GATHERED_VALUE_BYTES_MIN as _GATHERED_VALUE_BYTES_MIN

cdef uint32_t GATHERED_VALUE_BYTES_MIN = _GATHERED_VALUE_BYTES_MIN


cdef class Delivery:
    def __cinit__(self, Batch batch not None, TopicTable topics not None, object rows):
        cdef uint32_t position
        self.batch = batch
        self.topics = topics
        self.count = batch.columns.count
        if rows is None:
            self.check_stored()
            return
        PyObject_GetBuffer(rows, &self.view, PyBUF_SIMPLE)
        self.holds_view = True
        if self.view.itemsize != sizeof(uint32_t) or self.view.len // 4 > 0xFFFFFFFF:
            raise ValueError("rows are not a buffer of 32-bit row numbers")
        self.count = <uint32_t>(self.view.len // 4)
        self.rows = <const uint32_t *>self.view.buf
        for position in range(self.count):
            if self.rows[position] >= batch.columns.count:
                raise IndexError(f"row {self.rows[position]} of a batch of {len(batch)}")
        self.check_stored()

    def __dealloc__(self):
        if self.holds_view:
            PyBuffer_Release(&self.view)

    cdef int check_stored(self) except -1:
        """Raise ValueError for a row of a log that is hidden or whose topic is not in `topics`."""
        cdef uint32_t position, row
        if self.batch.source != STORED:
            return 0
        for position in range(self.count):
            row = self.row(position)
            if (
                self.batch.columns.flags[row] & HIDDEN
                or self.batch.columns.topic[row] >= self.topics.count
            ):
                raise ValueError(f"row {row} is not for subscribers")
        return 0

    cdef object frames(self, Measure measure, Write write):
        cdef size_t size, value_bytes
        self.batch.read()
        try:
            if self.count <= SHORT_ROWS:
                size = measure(self)
            else:
                with nogil:
                    size = measure(self)
            if self.refused:
                raise ValueNotDeliverable(
                    self.refused - 1, self.topics.name(self.batch.columns.topic[self.refused - 1])
                )
            value_bytes = self.large_value_bytes() if self.batch.lends else 0
            if value_bytes:
                return self.gathered(write, size, value_bytes)
            return self.copied(write, size)
        finally:
            self.batch.unread()

    cdef bytes copied(self, Write write, size_t size):
        cdef bytes frames = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
        cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(frames)
        if size <= SHORT_BYTES:
            write(self, out, out + size)
        else:
            with nogil:
                write(self, out, out + size)
        return frames

    cdef object gathered(self, Write write, size_t size, size_t value_bytes):
        """Return frames that refer to their values: each row has one piece at most."""
        cdef Gathered frames = Gathered(self.batch)
        cdef size_t between_max = size - value_bytes   # less is used if pieces are whole frames
        cdef uint8_t *out = frames.allot(self.count, between_max)
        self.pieces = frames.pieces
        self.piece_bytes_min = GATHERED_VALUE_BYTES_MIN
        with nogil:                # checksums take time
            write(self, out, out + between_max)
        self.pieces = NULL
        frames.finish(self.piece_count, size)
        return frames

    cdef size_t large_value_bytes(self) noexcept nogil:
        """Return the bytes of large values; 0 if they are less than half of all values."""
        cdef const uint32_t *lengths = self.batch.columns.value_length
        cdef uint32_t position, length, bits = 0
        cdef size_t size = 0, large = 0
        if self.batch.data_length < GATHERED_VALUE_BYTES_MIN:
            return 0
        if not self.rows:          # mostly no value is large, and this loop is vectorized
            for position in range(self.count):
                bits |= lengths[position]
            if bits < GATHERED_VALUE_BYTES_MIN:
                return 0
        for position in range(self.count):
            length = lengths[self.row(position)]
            size += length
            if length >= GATHERED_VALUE_BYTES_MIN:
                large += length
        return large if 2 * large >= size else 0


cdef size_t measure_frames(Delivery delivery) noexcept nogil:
    """Return the size of frames that are delivered unchanged."""
    cdef size_t size = 0
    cdef uint32_t position
    for position in range(delivery.count):
        size += delivery.batch.columns.frame_length[delivery.row(position)]
    return size


cdef void copy_frames(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    """Copy frames unchanged; frames that are adjacent in the buffer are copied at once."""
    cdef const uint32_t *frame_start = delivery.batch.columns.frame_start
    cdef const uint32_t *frame_length = delivery.batch.columns.frame_length
    cdef uint32_t position, row
    cdef size_t run_start = 0, run_end = 0
    for position in range(delivery.count):
        row = delivery.row(position)
        if frame_start[row] != run_end:
            out = copy_run(delivery, out, run_start, run_end)
            run_start = frame_start[row]
        run_end = <size_t>frame_start[row] + frame_length[row]
    copy_run(delivery, out, run_start, run_end)


cdef inline uint8_t *copy_run(
    Delivery delivery, uint8_t *out, size_t start, size_t end
) noexcept nogil:
    if delivery.refers(end - start):
        delivery.refer(out, delivery.batch.data + start, end - start)
        return out
    memcpy(out, delivery.batch.data + start, end - start)
    return out + (end - start)

"""The Batch: a run of publish frames as columns over the buffer they were received in.

A batch borrows its buffer: values, frames and headers are positions in it, and it is held from the
scan that fills the batch until `clear` or the next scan. One thread fills it; then any number may
encode from it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from penstock.limits import BATCH_ROWS_MAX, BATCH_SENDERS_MAX

if BATCH_SENDERS_MAX != SENDERS_MAX:
    raise ImportError("limits.BATCH_SENDERS_MAX is not the kernel's SENDERS_MAX")


cdef class Sender:
    def __cinit__(self, bytes uuid not None, uint32_t number):
        if len(uuid) != 16:
            raise ValueError(f"a sender's uuid has 16 bytes, not {len(uuid)}")
        memcpy(self.identity.uuid, PyBytes_AS_STRING(uuid), 16)
        self.identity.number = number

    @property
    def uuid(self):
        return PyBytes_FromStringAndSize(<char *>self.identity.uuid, 16)

    @property
    def number(self):
        return self.identity.number


cdef class Batch:
    def __cinit__(self, *, uint32_t rows_max=BATCH_ROWS_MAX):
        self.rows_max = rows_max

    def __dealloc__(self):
        if self.holds_view:
            PyBuffer_Release(&self.view)
        free(self.columns.topic)
        free(self.columns.value_start)
        free(self.columns.value_length)
        free(self.columns.frame_start)
        free(self.columns.frame_length)
        free(self.columns.headers_start)
        free(self.columns.headers_length)
        free(self.columns.message_id)
        free(self.columns.created)
        free(self.columns.status)
        free(self.columns.flags)
        free(self.columns.sender)

    def __len__(self):
        return self.columns.count

    @property
    def protocol(self):
        return <int>self.source

    @property
    def order(self):
        return "big" if self.big else "little"

    def clear(self):
        if self.users:
            raise RuntimeError("the batch is in use by another thread")
        self.columns.count = 0
        self.source = NO_SOURCE
        if self.holds_view:
            PyBuffer_Release(&self.view)
            self.holds_view = False

    cdef int begin(
        self, object data, Py_ssize_t start, Source source, bint big, Sender sender
    ) except -1:
        """Empty the batch and hold `data` for a scanner; `finish` must follow."""
        if sender is None:
            raise TypeError("a sender is needed")
        self.clear()
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.holds_view = True
        if not 0 <= start <= self.view.len or self.view.len > 0xFFFFFFFF:
            length = self.view.len
            self.clear()
            raise ValueError(f"cannot scan {length} bytes from {start}")
        self.data = <const uint8_t *>self.view.buf
        self.data_length = <size_t>self.view.len
        self.source = source
        self.big = big
        self.senders[0] = sender.identity
        self.sender_count = 0 if source == RHEOS1 or source == RHEOS2 else 1
        self.sender_number = sender.identity.number
        self.users = -1
        return 0

    cdef void finish(self) noexcept:
        self.users = 0

    cdef int read(self) except -1:
        if self.users < 0:
            raise RuntimeError("the batch is being filled by another thread")
        self.users += 1
        return 0

    cdef void unread(self) noexcept:
        self.users -= 1

    cdef uint32_t check_row(self, uint32_t row) except? 0xFFFFFFFF:
        if row >= self.columns.count or self.users < 0:
            raise IndexError(f"row {row} of a batch of {self.columns.count}")
        return row

    def topic_id(self, uint32_t row):
        return self.columns.topic[self.check_row(row)]

    def value(self, uint32_t row):
        self.check_row(row)
        return self.data[
            self.columns.value_start[row]:
            <size_t>self.columns.value_start[row] + self.columns.value_length[row]
        ]

    def sender(self, uint32_t row):
        cdef const SenderId *identity = sender_of(self, self.check_row(row))
        return Sender(PyBytes_FromStringAndSize(<const char *>identity.uuid, 16), identity.number)

    def frame(self, uint32_t row):
        self.check_row(row)
        if self.source not in (RHEOS2, FLEXIMQ, LAMAMQ):
            return None
        return self.data[
            self.columns.frame_start[row]:
            <size_t>self.columns.frame_start[row] + self.columns.frame_length[row]
        ]

    def headers(self, uint32_t row):
        self.check_row(row)
        if self.source != LAMAMQ:
            return None
        return self.data[
            self.columns.headers_start[row]:
            <size_t>self.columns.headers_start[row] + self.columns.headers_length[row]
        ]

    def message_id(self, uint32_t row):
        self.check_row(row)
        return self.columns.message_id[row] if self.source == LAMAMQ else None

    def created(self, uint32_t row):
        self.check_row(row)
        return self.columns.created[row] if self.source == LAMAMQ else None

    def status(self, uint32_t row):
        self.check_row(row)
        if self.source != FLEXIMQ or not self.columns.status[row]:
            return None
        return self.columns.status[row] - 1

    def routes(self, const uint32_t[::1] route_of_topic not None, *, uint32_t route_count):
        cdef const uint32_t *route_of = &route_of_topic[0] if route_of_topic.shape[0] else NULL
        cdef uint32_t known = <uint32_t>route_of_topic.shape[0]
        cdef uint32_t row = 0, route = 0, last = 0xFFFFFFFF
        cdef uint8_t *seen
        cdef list found = []
        self.read()
        seen = <uint8_t *>calloc(route_count + 1, 1)
        try:
            if not seen:
                raise MemoryError
            while True:
                with nogil:
                    while row < self.columns.count:
                        route = route_at(route_of, known, self.columns.topic[row])
                        if route != last and (route >= route_count or not seen[route]):
                            break
                        row += 1
                if row == self.columns.count:
                    return found
                if route >= route_count:
                    raise IndexError(f"route {route} of {route_count}")
                seen[route] = 1
                last = route
                found.append(route)
        finally:
            free(seen)
            self.unread()

    def select(
        self,
        const uint32_t[::1] route_of_topic not None,
        const uint8_t[::1] wanted not None,
        *,
        uint32_t value_bytes_max=0xFFFFFFFF,
    ):
        cdef const uint32_t *route_of = &route_of_topic[0] if route_of_topic.shape[0] else NULL
        cdef const uint8_t *marks = &wanted[0] if wanted.shape[0] else NULL
        cdef uint32_t known = <uint32_t>route_of_topic.shape[0]
        cdef uint32_t route_count = <uint32_t>wanted.shape[0]
        cdef uint32_t row, route, found = 0
        cdef uint32_t *rows
        cdef bytes result
        self.read()
        try:
            result = PyBytes_FromStringAndSize(NULL, self.columns.count * sizeof(uint32_t))
            rows = <uint32_t *>PyBytes_AS_STRING(result)
            with nogil:
                for row in range(self.columns.count):
                    route = route_at(route_of, known, self.columns.topic[row])
                    rows[found] = row
                    if (
                        route < route_count
                        and marks[route]
                        and self.columns.value_length[row] <= value_bytes_max
                    ):
                        found += 1
        finally:
            self.unread()
        return memoryview(result).cast("I")[:found]


cdef inline uint32_t route_at(
    const uint32_t *route_of, uint32_t known, uint32_t topic
) noexcept nogil:
    return route_of[topic] if topic < known else 0


cdef int find_sender(Batch batch, const uint8_t *uuid) noexcept nogil:
    cdef uint32_t index
    for index in range(batch.sender_count):
        if same16(batch.senders[index].uuid, uuid):
            return <int>index
    if batch.sender_count == SENDERS_MAX:
        return -1
    index = batch.sender_count
    memcpy(batch.senders[index].uuid, uuid, 16)
    batch.senders[index].number = batch.sender_number
    batch.sender_count = index + 1
    return <int>index


cdef bint grow(Columns *columns, uint32_t rows_max) noexcept nogil:
    """Make room for more rows, up to rows_max; return whether there is room."""
    cdef uint32_t capacity = min(max(columns.capacity * 2, 256), rows_max)
    if columns.count >= rows_max:
        return False
    if not (
        widen(<void **>&columns.topic, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.value_start, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.value_length, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.frame_start, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.frame_length, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.headers_start, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.headers_length, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.message_id, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.created, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.status, capacity * sizeof(uint32_t))
        and widen(<void **>&columns.flags, capacity)
        and widen(<void **>&columns.sender, capacity)
    ):
        return False
    columns.capacity = capacity
    return True


cdef bint widen(void **column, size_t size) noexcept nogil:
    cdef void *wider = realloc(column[0], size)
    if not wider:
        return False
    column[0] = wider
    return True

"""The Batch: a run of publish frames as columns over the buffer they were received in.

A batch borrows its buffer: values, frames and headers are positions in it. The batch holds the
buffer from the scan that fills it until `clear` or the next scan. One thread fills the batch; then
any number of threads may encode from it. `stored.load` fills a batch from the log instead of a
scan; the buffer is then a group of the log, and encoders read the Arrow columns in place.
"""

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy

from penstock._kernels.frame cimport load16, load32, load64

from penstock.limits import BATCH_ROWS_MAX, BATCH_SENDERS_MAX
from penstock.protocols import PROTOCOLS

if BATCH_SENDERS_MAX != SENDERS_MAX:
    raise ImportError("limits.BATCH_SENDERS_MAX is not the kernel's SENDERS_MAX")


cdef uint32_t FEATURES[256]        # of each protocol's rows, by its number


cdef uint32_t features_of(object carries):
    """Return the features of a protocol's rows when they are read back from a log."""
    return (
        (HAS_SENDERS if carries.sender_ids else 0)
        | (HAS_HEADERS if carries.headers else 0)
        | (HAS_CREATED if carries.created else 0)
        | (HAS_STATUS if carries.status else 0)
    )


for _protocol in PROTOCOLS:
    FEATURES[<uint8_t>_protocol.number] = features_of(_protocol.carries)


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
        free(self.stored.sender_uuids)

    def __len__(self):
        return self.columns.count

    @property
    def protocol(self):
        return self.source

    @property
    def order(self):
        return "big" if self.big else "little"

    def clear(self):
        if self.users:
            raise RuntimeError("the batch is in use by another thread")
        self.columns.count = 0
        self.source = NO_SOURCE
        self.lends = False
        self.loads += 1
        if self.holds_view:
            PyBuffer_Release(&self.view)
            self.holds_view = False

    cdef int begin(
        self,
        object data,
        Py_ssize_t start,
        uint32_t source,
        uint32_t features,
        bint big,
        Sender sender,
    ) except -1:
        """Empty the batch and hold `data` for a scanner; `finish` must follow."""
        if sender is None:
            raise TypeError("a sender is needed")
        self.hold(data)
        if not 0 <= start <= self.view.len:
            length = self.view.len
            self.clear()
            raise ValueError(f"cannot scan {length} bytes from {start}")
        self.source = source
        self.features = features
        self.big = big
        self.senders[0] = sender.identity
        self.sender_count = 0 if features & HAS_SENDERS else 1
        self.sender_number = sender.identity.number
        self.users = -1
        return 0

    cdef int hold(self, object data) except -1:
        """Empty the batch and hold `data`, whose positions must fit the columns."""
        self.clear()
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.holds_view = True
        if self.view.len > 0xFFFFFFFF:
            length = self.view.len
            self.clear()
            raise ValueError(f"cannot scan {length} bytes")
        self.data = <const uint8_t *>self.view.buf
        self.data_length = <size_t>self.view.len
        return 0

    def fill(self, object data, rows, *, uint32_t protocol, str order not None, Sender sender not None):
        self.begin(data, 0, protocol, 0, order == "big", sender)
        try:
            for topic, start, length in rows:
                if not 0 <= start <= start + length <= self.view.len:
                    raise ValueError(f"{length} bytes at {start} of {self.view.len}")
                if not has_room(&self.columns, self.rows_max):
                    raise ValueError(f"more than {self.rows_max} rows")
                self.columns.topic[self.columns.count] = topic
                self.columns.value_start[self.columns.count] = start
                self.columns.value_length[self.columns.count] = length
                self.columns.count += 1
        except BaseException:
            self.finish()
            self.clear()
            raise
        self.finish()

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
        cdef uint8_t uuid[16]
        put_sender_uuid(self, self.check_row(row), self.source == STORED, uuid)
        return Sender(PyBytes_FromStringAndSize(<const char *>uuid, 16), sender_number(self, row))

    def frame(self, uint32_t row):
        self.check_row(row)
        if not self.features & HAS_FRAMES or self.source == STORED:
            return None
        return self.data[
            self.columns.frame_start[row]:
            <size_t>self.columns.frame_start[row] + self.columns.frame_length[row]
        ]

    def headers(self, uint32_t row):
        if not self.row_features(row) & HAS_HEADERS:
            return None
        if self.source == STORED:
            return self.stored_headers(row)
        return self.data[
            self.columns.headers_start[row]:
            <size_t>self.columns.headers_start[row] + self.columns.headers_length[row]
        ]

    def find_header(self, bytes name not None, *, uint32_t first_row=0):
        cdef Piece wanted = Piece(<const uint8_t *>PyBytes_AS_STRING(name), <size_t>len(name))
        cdef Piece value
        cdef uint32_t row = first_row
        self.read()
        try:
            if self.source != STORED and not self.features & HAS_HEADERS:
                return None
            while row < self.columns.count:
                if self.source == STORED:
                    value = stored_header(self, row, wanted)
                else:
                    value = scanned_header(self, row, wanted)
                if value.data:
                    return row, value.data[:value.length]
                row += 1
            return None
        finally:
            self.unread()

    def message_id(self, uint32_t row):
        self.check_row(row)
        if not self.features & HAS_MESSAGE_IDS or self.source == STORED:
            return None
        return self.columns.message_id[row]

    def created(self, uint32_t row):
        return self.columns.created[row] if self.row_features(row) & HAS_CREATED else None

    def status(self, uint32_t row):
        if not self.row_features(row) & HAS_STATUS or not self.columns.status[row]:
            return None
        return self.columns.status[row] - 1

    def row_protocol(self, uint32_t row):
        self.check_row(row)
        return source_of(self, row) if self.source == STORED else self.source

    def row_timestamp_us(self, uint32_t row):
        self.check_row(row)
        if self.source != STORED:
            return self.timestamp_us
        return <int64_t>load64(self.stored.timestamp + 8 * <size_t>row, False)

    def times_and_senders(self, const uint32_t[::1] rows not None):
        cdef size_t count = <size_t>rows.shape[0]
        cdef bytes result = PyBytes_FromStringAndSize(NULL, 12 * count)
        cdef uint8_t *times = <uint8_t *>PyBytes_AS_STRING(result)
        cdef uint8_t *senders = times + 8 * count
        cdef uint64_t time
        cdef uint32_t sender
        cdef size_t index
        cdef int byte
        self.read()
        try:
            for index in range(count):
                self.check_row(rows[index])
                time = <uint64_t>self.timestamp_us
                if self.source == STORED:
                    time = load64(self.stored.timestamp + 8 * <size_t>rows[index], False)
                sender = sender_number(self, rows[index])
                for byte in range(8):
                    times[8 * index + byte] = <uint8_t>(time >> (8 * byte))
                for byte in range(4):
                    senders[4 * index + byte] = <uint8_t>(sender >> (8 * byte))
        finally:
            self.unread()
        return result

    def form(self, uint32_t row):
        self.check_row(row)
        return self.columns.flags[row] & FORM if self.source == STORED else None

    def hidden(self, uint32_t row):
        self.check_row(row)
        return self.source == STORED and self.columns.flags[row] & HIDDEN != 0

    cdef uint32_t row_features(self, uint32_t row) except? 0xFFFFFFFF:
        self.check_row(row)
        if self.source == STORED:
            return FEATURES[source_of(self, row)]
        return self.features

    cdef bytes stored_headers(self, uint32_t row):
        cdef StoredColumns *stored = &self.stored
        cdef size_t entry = load32(stored.headers + 4 * <size_t>row, False)
        cdef size_t end = load32(stored.headers + 4 * (<size_t>row + 1), False)
        cdef object count = end - entry
        cdef list parts = [count.to_bytes(2, "big")]
        while entry < end:
            parts.append(counted(stored.header_keys, stored.header_key_data, entry))
            parts.append(counted(stored.header_values, stored.header_value_data, entry))
            entry += 1
        return b"".join(parts)

    def routes(self, array route_of_topic not None, *, uint32_t route_count):
        return distinct(self, labels_of(route_of_topic, None), route_count)

    def kinds(
        self,
        array route_of_topic not None,
        array kind_of_route not None,
        *,
        uint32_t kind_count,
    ):
        return distinct(self, labels_of(route_of_topic, kind_of_route), kind_count)

    def select(
        self,
        array route_of_topic not None,
        const uint8_t[::1] wanted,
        *,
        array kind_of_route=None,
        uint32_t value_bytes_max=0xFFFFFFFF,
    ):
        cdef Labels labels = labels_of(route_of_topic, kind_of_route)
        cdef Marks marks = marks_of(wanted)
        cdef const uint8_t *flags = self.columns.flags if self.source == STORED else NULL
        cdef uint32_t row, label, found = 0
        cdef uint32_t *rows
        cdef bytes result
        self.read()
        try:
            result = PyBytes_FromStringAndSize(NULL, self.columns.count * sizeof(uint32_t))
            rows = <uint32_t *>PyBytes_AS_STRING(result)
            for row in range(self.columns.count):
                label = label_at(&labels, self.columns.topic[row])
                rows[found] = row
                if (
                    is_marked(&marks, label)
                    and self.columns.value_length[row] <= value_bytes_max
                    and not (flags and flags[row] & HIDDEN)
                ):
                    found += 1
        finally:
            self.unread()
        return memoryview(result).cast("I")[:found]

    def select_piece(
        self,
        array route_of_topic not None,
        const uint8_t[::1] wanted,
        *,
        array kind_of_route=None,
        uint32_t first_row=0,
        object last_row=None,
        uint64_t bytes_max=0xFFFFFFFFFFFFFFFF,
        uint32_t value_bytes_max=0xFFFFFFFF,
        uint32_t without_sender=0,
        uint32_t own_from_row=0,
    ):
        cdef Labels labels = labels_of(route_of_topic, kind_of_route)
        cdef Marks marks = marks_of(wanted)
        cdef bint stored = self.source == STORED
        cdef uint32_t end, row, label, found = 0
        cdef uint64_t size = 0
        cdef uint32_t *rows
        cdef bytes result
        self.read()
        try:
            end = self.columns.count if last_row is None else min(last_row, self.columns.count)
            row = min(first_row, end)
            result = PyBytes_FromStringAndSize(NULL, (end - row) * sizeof(uint32_t))
            rows = <uint32_t *>PyBytes_AS_STRING(result)
            while row < end and size < bytes_max:
                label = label_at(&labels, self.columns.topic[row])
                if (
                    is_marked(&marks, label)
                    and self.columns.value_length[row] <= value_bytes_max
                    and not (stored and self.columns.flags[row] & HIDDEN)
                    and not (
                        without_sender
                        and row >= own_from_row
                        and sender_number(self, row) == without_sender
                    )
                ):
                    rows[found] = row
                    found += 1
                    size += (
                        self.columns.frame_length[row]
                        if stored
                        else <uint64_t>self.columns.value_length[row] + FRAME_OVERHEAD
                    )
                row += 1
        finally:
            self.unread()
        return memoryview(result).cast("I")[:found], row


cdef bytes counted(const uint8_t *offsets, const uint8_t *data, size_t entry):
    """Return an Arrow string as a u32 length in network order and its bytes."""
    cdef uint32_t start = load32(offsets + 4 * entry, False)
    cdef uint32_t end = load32(offsets + 4 * (entry + 1), False)
    cdef object length = end - start
    return length.to_bytes(4, "big") + data[start:end]


cdef Piece stored_header(Batch batch, uint32_t row, Piece wanted) noexcept nogil:
    """Return the value of a header of a stored message; no data without it, or if it is hidden."""
    cdef StoredColumns *stored = &batch.stored
    cdef size_t entry = load32(stored.headers + 4 * <size_t>row, False)
    cdef size_t end = load32(stored.headers + 4 * (<size_t>row + 1), False)
    cdef uint32_t start
    cdef Piece found = Piece(NULL, 0)
    if batch.columns.flags[row] & HIDDEN:
        return found
    while entry < end:
        start = load32(stored.header_keys + 4 * entry, False)
        found.length = load32(stored.header_keys + 4 * (entry + 1), False) - start
        if (
            found.length == wanted.length
            and memcmp(stored.header_key_data + start, wanted.data, wanted.length) == 0
        ):
            start = load32(stored.header_values + 4 * entry, False)
            found.data = stored.header_value_data + start
            found.length = load32(stored.header_values + 4 * (entry + 1), False) - start
            return found
        entry += 1
    return found


cdef Piece scanned_header(Batch batch, uint32_t row, Piece wanted) noexcept nogil:
    """Return the value of a header of a scanned message, whose lengths the scan has checked."""
    cdef const uint8_t *headers = batch.data + batch.columns.headers_start[row]
    cdef uint32_t left = load16(headers, batch.big)
    cdef size_t at = 2
    cdef bint same
    cdef Piece found = Piece(NULL, 0)
    while left:
        found.length = load32(headers + at, batch.big)
        same = (
            found.length == wanted.length
            and memcmp(headers + at + 4, wanted.data, wanted.length) == 0
        )
        at += 4 + found.length
        found.length = load32(headers + at, batch.big)
        if same:
            found.data = headers + at + 4
            return found
        at += 4 + found.length
        left -= 1
    return found


cdef struct Labels:
    # Which label each topic has: its route, or with `kinds` the kind of its route.
    const uint32_t *routes
    uint32_t route_count
    const uint32_t *kinds
    uint32_t kind_count
    bint by_kind


cdef Labels labels_of(array route_of_topic, array kind_of_route) except *:
    cdef Labels labels
    labels.routes = numbers_in(route_of_topic)
    labels.route_count = <uint32_t>len(route_of_topic)
    labels.by_kind = kind_of_route is not None
    labels.kinds = NULL
    labels.kind_count = 0
    if labels.by_kind:
        labels.kinds = numbers_in(kind_of_route)
        labels.kind_count = <uint32_t>len(kind_of_route)
    return labels


cdef const uint32_t *numbers_in(array numbers) except? NULL:
    """Return the items of an array, which must not change meanwhile."""
    if numbers.ob_descr.typecode != b"I":
        raise TypeError("routes and kinds are numbers of 32 bits")
    return numbers.data.as_uints


cdef inline uint32_t label_at(const Labels *labels, uint32_t topic) noexcept nogil:
    cdef uint32_t route = labels.routes[topic] if topic < labels.route_count else 0
    if not labels.by_kind:
        return route
    return labels.kinds[route] if route < labels.kind_count else 0


cdef tuple distinct(Batch batch, Labels labels, uint32_t count):
    """Return the distinct labels of the batch's rows in ascending order; all are below `count`."""
    cdef const uint8_t *flags = batch.columns.flags if batch.source == STORED else NULL
    cdef uint32_t row, label
    cdef uint8_t *seen
    cdef uint8_t *found
    cdef list result
    if batch.columns.count == 1 and not flags:
        label = label_at(&labels, batch.columns.topic[0])
        if label >= count:
            raise IndexError(f"route or kind {label} of {count}")
        return (label,)
    result = []
    batch.read()
    seen = <uint8_t *>calloc(<size_t>count + 1, 1)
    try:
        if not seen:
            raise MemoryError
        for row in range(batch.columns.count):
            if flags and flags[row] & HIDDEN:
                continue
            seen[min(label_at(&labels, batch.columns.topic[row]), count)] = 1
        if seen[count]:
            raise IndexError(f"a route or kind is not below {count}")
        found = <uint8_t *>memchr(seen, 1, count)
        while found:
            result.append(found - seen)
            found = <uint8_t *>memchr(found + 1, 1, seen + count - found - 1)
        return tuple(result)
    finally:
        free(seen)
        batch.unread()


cdef struct Marks:
    const uint8_t *data
    uint32_t count
    bint all


cdef Marks marks_of(const uint8_t[::1] wanted):
    """Return the marks of labels; None marks all."""
    cdef Marks marks
    marks.all = wanted is None
    marks.count = 0 if marks.all else <uint32_t>wanted.shape[0]
    marks.data = &wanted[0] if marks.count else NULL
    return marks


cdef inline bint is_marked(const Marks *marks, uint32_t label) noexcept nogil:
    return marks.all or (label < marks.count and marks.data[label])


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
    return columns.count < rows_max and reserve(columns, capacity)


cdef bint reserve(Columns *columns, uint32_t capacity) noexcept nogil:
    """Make room for `capacity` rows in all; return whether there is room."""
    if capacity <= columns.capacity:
        return True
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
        and widen(<void **>&columns.sender, capacity * sizeof(uint16_t))
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

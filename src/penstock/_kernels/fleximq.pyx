"""fleximq: PUB messages to a Batch, rows of any Batch to PUB messages.

    0         1      2           6          22              26       26+H             34+H
    ┌─────────┬──────┬───────────┬──────────┬───────────────┬────────┬────────────────┬─────────┐
    │ version │ type │ client id │ reserved │ header length │ header │ payload length │ payload │
    │ 01      │ 05   │ u32       │ 16 zeros │ H, u32        │        │ u64            │         │
    └─────────┴──────┴───────────┴──────────┴───────────────┴────────┴────────────────┴─────────┘

Integers are big-endian. The header is a MessagePack map. Each distinct header is parsed once and
then recognised by its bytes; of the long ones, only the last. Between fleximq clients messages are delivered unchanged, whole runs
at once. A message of a log is encoded again, in its shortest form.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from penstock._kernels.batch cimport (
    FORM,
    FORM_BINARY,
    FORM_EMPTY,
    FORM_MESSAGEPACK,
    FORM_TEXT,
    HAS_FORMS,
    HAS_FRAMES,
    RESERVED_SET,
    HAS_STATUS,
    STORED,
    Batch,
    Columns,
    Sender,
    has_room,
    sender_number,
    sender_of,
    source_of,
)
from penstock._kernels.delivery cimport Delivery, copy_frames, measure_frames
from penstock._kernels.frame cimport (
    advance,
    load32,
    load64,
    put,
    same_bytes,
    store16,
    store32,
    store64,
)
from penstock._kernels.names cimport Names, names_add, names_close, names_find, names_open
from penstock._kernels.scanning cimport Scan
from penstock._kernels.topics cimport Topic, TopicTable, topic_at

from penstock.errors import InvalidTopicName, TopicTableFull
from penstock.protocols.fleximq import (
    FLEXIMQ,
    FLEXIMQ_CACHED_HEADER_BYTES_MAX,
    FLEXIMQ_HEADERS_CACHED_BYTES_MAX,
    FLEXIMQ_HEADERS_CACHED_MAX,
    FLEXIMQ_HEADER_BYTES_MAX,
    FLEXIMQ_MESSAGE_BYTES_MAX,
    FLEXIMQ_PAYLOAD_DEPTH_CEILING,
    FLEXIMQ_PAYLOAD_DEPTH_MAX,
)
from penstock.replay import ends_in_replay

cdef extern from "messagepack.h" nogil:
    enum:
        MESSAGEPACK_DEPTH_MAX
    size_t messagepack_length(const uint8_t *p, size_t n, uint32_t depth_max)
    bint messagepack_raw_value(
        const uint8_t *p,
        size_t n,
        uint32_t depth_max,
        uint32_t *start,
        uint32_t *length,
    )

cdef enum:
    NUMBER = 3                     # of the protocol
    VERSION = 1
    PUB = 5
    RESERVED = 16
    FIXED = 34                     # all but header and payload
    CACHE_ENTRY = 176              # bytes of an entry of the cache, but for its header, at most

if FLEXIMQ_PAYLOAD_DEPTH_CEILING > MESSAGEPACK_DEPTH_MAX:
    raise ImportError("FLEXIMQ_PAYLOAD_DEPTH_CEILING is more than the kernel can follow")

if FLEXIMQ.number != NUMBER:
    raise ImportError("the number of fleximq is not the kernel's")


cdef struct Publication:
    uint32_t topic
    uint32_t status                # plus one; 0 where there is none


cdef class HeaderCache:
    cdef object publication
    cdef readonly uint32_t capacity
    cdef readonly uint64_t size    # bytes of all headers, with what each entry takes
    cdef readonly uint64_t size_max
    cdef readonly uint32_t header_bytes_max
    cdef Names by_header           # to the index of its publication, plus one
    cdef Publication *publications
    cdef list headers              # owns the bytes that by_header points to
    cdef bytes long_header         # the last that was too long for the cache
    cdef const uint8_t *long_start
    cdef uint32_t long_length      # 0 where there is none
    cdef Publication long_publication
    cdef uint32_t removals         # of the topic table, when the cache was last emptied
    cdef bint busy

    def __cinit__(
        self,
        object publication not None,
        *,
        uint32_t capacity=FLEXIMQ_HEADERS_CACHED_MAX,
        uint64_t size_max=FLEXIMQ_HEADERS_CACHED_BYTES_MAX,
        uint32_t header_bytes_max=FLEXIMQ_CACHED_HEADER_BYTES_MAX,
    ):
        if not capacity or size_max < header_bytes_max + CACHE_ENTRY:
            raise ValueError("a header cache holds at least one header")
        self.publication = publication
        self.capacity = capacity
        self.size_max = size_max
        self.header_bytes_max = header_bytes_max
        self.open()

    def __dealloc__(self):
        names_close(&self.by_header)
        free(self.publications)

    def __len__(self):
        return self.by_header.count

    cdef int open(self) except -1:
        self.headers = []
        self.size = 0
        self.long_header = None
        self.long_start = NULL
        self.long_length = 0
        if not names_open(&self.by_header, int.from_bytes(os.urandom(8), "little")):
            raise MemoryError
        return 0

    cdef int empty(self) except -1:
        names_close(&self.by_header)
        free(self.publications)
        self.publications = NULL
        self.open()
        return 0

    cdef int follow(self, TopicTable topics) except -1:
        """Empty the cache if a topic was removed: its number must not be used any more."""
        if self.removals != topics.removals:
            self.empty()
            self.removals = topics.removals
        return 0

    cdef bint learn(self, bytes header, TopicTable topics, bint learn_topics) except -1:
        """Parse a new header; return whether a PUB with it can be scanned from now on."""
        cdef uint32_t length = <uint32_t>PyBytes_GET_SIZE(header)
        cdef uint32_t index
        cdef Publication *wider
        found = self.publication(header)
        if found is None:
            return False
        topic, status = found
        if ends_in_replay(topic):
            return False
        try:
            identifier = topics.intern(topic) if learn_topics else topics.find(topic)
        except (InvalidTopicName, TopicTableFull):
            return False
        if identifier is None:
            return False
        if length > self.header_bytes_max:
            self.long_header = header
            self.long_start = <const uint8_t *>PyBytes_AS_STRING(header)
            self.long_length = length
            self.long_publication.topic = identifier
            self.long_publication.status = 0 if status is None else status + 1
            return True
        if (
            self.by_header.count == self.capacity
            or self.size + length + CACHE_ENTRY > self.size_max
        ):
            self.empty()
        index = self.by_header.count
        if index & (index - 1) == 0:       # 0, 1 and each power of two: the next is as large again
            wider = <Publication *>realloc(self.publications, max(2 * index, 1) * sizeof(Publication))
            if not wider:
                raise MemoryError
            self.publications = wider
        self.publications[index].topic = identifier
        self.publications[index].status = 0 if status is None else status + 1
        self.headers.append(header)
        self.size += length + CACHE_ENTRY
        if not names_add(
            &self.by_header, <const uint8_t *>PyBytes_AS_STRING(header), length, index + 1
        ):
            raise MemoryError
        return True


cdef class FleximqScan(Scan):
    cdef HeaderCache headers
    cdef uint32_t client_id
    cdef uint32_t header_bytes_max
    cdef uint32_t payload_depth_max

    cdef bint learn(self, bytes unknown) except -1:
        return self.headers.learn(unknown, self.topics, self.learn_topics)


def scan(
    object data,
    Py_ssize_t start,
    Batch batch not None,
    TopicTable topics not None,
    Sender sender not None,
    *,
    HeaderCache headers not None,
    bint learn_topics=True,
    object permits=None,
    uint32_t header_bytes_max=FLEXIMQ_HEADER_BYTES_MAX,
    uint32_t message_bytes_max=FLEXIMQ_MESSAGE_BYTES_MAX,
    uint32_t payload_depth_max=FLEXIMQ_PAYLOAD_DEPTH_MAX,
):
    cdef FleximqScan scan = FleximqScan(batch, topics)
    if payload_depth_max > MESSAGEPACK_DEPTH_MAX:
        raise ValueError(f"payload_depth_max is {payload_depth_max}, above {MESSAGEPACK_DEPTH_MAX}")
    if headers.busy:
        raise RuntimeError("the header cache is in use by another thread")
    headers.follow(topics)
    scan.headers = headers
    scan.client_id = sender.identity.number
    scan.permit(permits)
    scan.learn_topics = learn_topics
    scan.header_bytes_max = header_bytes_max
    scan.bytes_max = message_bytes_max
    scan.payload_depth_max = payload_depth_max
    headers.busy = True
    try:
        return scan.walk(data, start, NUMBER, HAS_FRAMES | HAS_STATUS | HAS_FORMS, True, sender, run)
    finally:
        headers.busy = False


cdef inline uint32_t scanned_form(const uint8_t *payload, uint32_t value_start) noexcept nogil:
    """Return the form of a value that starts `value_start` bytes into its payload."""
    if not value_start:
        return FORM_MESSAGEPACK
    return FORM_BINARY if 0xC4 <= payload[0] <= 0xC6 else FORM_TEXT


cdef size_t run(Scan scan, size_t start) noexcept nogil:
    return run_messages(<FleximqScan>scan, start)


cdef size_t run_messages(FleximqScan scan, size_t start) noexcept nogil:
    cdef Columns *columns = &scan.batch.columns
    cdef const uint8_t *data = scan.batch.data
    cdef const uint8_t *frame
    cdef const uint8_t *last_header = NULL
    cdef size_t end = scan.batch.data_length
    cdef size_t expected = 0, length
    cdef uint64_t payload_length
    cdef uint32_t header_length, last_header_length = 0, number, row, value_start, value_length
    cdef Publication publication
    publication.topic = publication.status = 0
    while end - start >= FIXED:
        frame = data + start
        header_length = load32(frame + 22, True)
        if (
            frame[0] != VERSION
            or frame[1] != PUB
            or load32(frame + 2, True) != scan.client_id
            or header_length > scan.header_bytes_max
            or header_length > end - start - FIXED
        ):
            break
        payload_length = load64(frame + 26 + header_length, True)
        if (
            payload_length > scan.bytes_max
            or FIXED + header_length + payload_length > scan.bytes_max
            or payload_length > end - start - FIXED - header_length
        ):
            break
        if header_length != last_header_length or not last_header or not same_bytes(
            frame + 26, last_header, header_length
        ):
            number = names_find(&scan.headers.by_header, frame + 26, header_length)
            if number:
                publication = scan.headers.publications[number - 1]
            elif header_length and header_length == scan.headers.long_length and same_bytes(
                frame + 26, scan.headers.long_start, header_length
            ):
                publication = scan.headers.long_publication
            else:
                return scan.stop_at_unknown(start, start + 26, header_length)
            last_header = frame + 26
            last_header_length = header_length
        length = FIXED + header_length + payload_length
        if not messagepack_raw_value(
            frame + FIXED + header_length,
            payload_length,
            scan.payload_depth_max,
            &value_start,
            &value_length,
        ) or not scan.permitted(publication.topic) or not has_room(columns, scan.batch.rows_max):
            break
        row = columns.count
        columns.topic[row] = publication.topic
        columns.status[row] = publication.status
        columns.flags[row] = <uint8_t>(
            (RESERVED_SET if load64(frame + 6, True) | load64(frame + 14, True) else 0)
            | scanned_form(frame + FIXED + header_length, value_start)
        )
        columns.value_start[row] = <uint32_t>start + FIXED + header_length + value_start
        columns.value_length[row] = value_length
        columns.frame_start[row] = <uint32_t>start
        columns.frame_length[row] = <uint32_t>length
        columns.count = row + 1
        start = advance(start, length, &expected)
    return start


def encode(Batch batch not None, TopicTable topics not None, *, object rows=None):
    cdef Delivery delivery = Delivery(batch, topics, rows)
    if batch.source == NUMBER:
        return delivery.frames(measure_frames, copy_messages)
    if batch.source == STORED:
        return delivery.frames(measure_stored, write_stored)
    return delivery.frames(measure, write)


cdef void copy_messages(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    """Copy messages with their reserved bytes zeroed, as section 2.1 requires."""
    cdef uint32_t position, row
    if delivery.pieces:
        place_messages(delivery, out, end)
        return
    copy_frames(delivery, out, end)
    for position in range(delivery.count):
        row = delivery.row(position)
        if delivery.batch.columns.flags[row] & RESERVED_SET:
            memset(out + 6, 0, RESERVED)
        out += delivery.batch.columns.frame_length[row]


cdef void place_messages(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    """Write the start of each message with its reserved bytes zeroed, and place the rest."""
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef uint32_t position, row, start
    for position in range(delivery.count):
        row = delivery.row(position)
        start = delivery.batch.columns.frame_start[row]
        memcpy(out, data + start, 6)
        memset(out + 6, 0, RESERVED)
        out = delivery.place(
            out + 6 + RESERVED,
            end,
            data + start + 6 + RESERVED,
            data_end,
            delivery.batch.columns.frame_length[row] - 6 - RESERVED,
        )


cdef inline uint32_t bin_head(uint32_t length) noexcept nogil:
    """Return the size of the head of a MessagePack bin: bin 8, bin 16 or bin 32."""
    return 2 if length < 0x100 else 3 if length < 0x10000 else 5


cdef inline uint8_t *put_head(uint8_t *out, uint8_t first, uint32_t length) noexcept nogil:
    """Write the head of a bin (`first` is 0xC4) or of a str that is not a fixstr (0xD9)."""
    if length < 0x100:
        out[0] = first
        out[1] = <uint8_t>length
        return out + 2
    if length < 0x10000:
        out[0] = first + 1
        store16(out + 1, <uint16_t>length, True)
        return out + 3
    out[0] = first + 2
    store32(out + 1, length, True)
    return out + 5


cdef size_t measure(Delivery delivery) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef const uint32_t *topic = delivery.batch.columns.topic
    cdef size_t size = <size_t>(FIXED - 4) * delivery.count     # a topic's header has its length
    cdef uint32_t position, row, length, header_length
    for position in range(delivery.count):
        row = delivery.row(position)
        length = delivery.batch.columns.value_length[row]
        header_length = topic_at(chunks, topic[row]).fleximq_header_length
        if not header_length:
            return delivery.refuse(row)
        size += header_length + bin_head(length) + length
    return size


cdef void write(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef const uint32_t *topic_id = delivery.batch.columns.topic
    cdef const uint32_t *value_start = delivery.batch.columns.value_start
    cdef const uint32_t *value_length = delivery.batch.columns.value_length
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef Topic *topic
    cdef uint32_t position, row, length
    for position in range(delivery.count):
        row = delivery.row(position)
        topic = topic_at(chunks, topic_id[row])
        length = value_length[row]
        out[0] = VERSION
        out[1] = PUB
        store32(out + 2, sender_of(delivery.batch, row).number, True)
        memset(out + 6, 0, RESERVED)
        out = put(
            out + 22, end, topic.fleximq_header, topic.block_end, topic.fleximq_header_length
        )
        store64(out, bin_head(length) + length, True)
        out = put_head(out + 8, 0xC4, length)
        out = delivery.place(out, end, data + value_start[row], data_end, length)


# --- Messages of a log --------------------------------------------------------------------------


cdef inline uint32_t form_of(Batch batch, uint32_t row) noexcept nogil:
    """Return the form of a message's payload; messages of other protocols are a bin."""
    if source_of(batch, row) != NUMBER:
        return FORM_BINARY
    return batch.columns.flags[row] & FORM


cdef inline uint32_t payload_length(uint32_t form, uint32_t length) noexcept nogil:
    if form == FORM_MESSAGEPACK:
        return length
    if form == FORM_TEXT:
        return (1 if length < 32 else bin_head(length)) + length
    return 0 if form == FORM_EMPTY else bin_head(length) + length


cdef inline uint32_t status_length(uint32_t status) noexcept nogil:
    """Return the size of the header's "status" entry; its value is `status` minus one."""
    if not status:
        return 0
    return 8 if status <= 0x80 else 9 if status <= 0x100 else 10


cdef size_t measure_stored(Delivery delivery) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef Columns *columns = &delivery.batch.columns
    cdef size_t size = <size_t>(FIXED - 4) * delivery.count
    cdef uint32_t position, row, header_length
    for position in range(delivery.count):
        row = delivery.row(position)
        header_length = topic_at(chunks, columns.topic[row]).fleximq_header_length
        if not header_length:
            return delivery.refuse(row)
        size += header_length
        size += status_length(columns.status[row])
        size += payload_length(form_of(delivery.batch, row), columns.value_length[row])
    return size


cdef void write_stored(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef Columns columns = delivery.batch.columns
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef Topic *topic
    cdef uint32_t position, row, length, form
    for position in range(delivery.count):
        row = delivery.row(position)
        topic = topic_at(chunks, columns.topic[row])
        length = columns.value_length[row]
        form = form_of(delivery.batch, row)
        out[0] = VERSION
        out[1] = PUB
        store32(out + 2, sender_number(delivery.batch, row), True)
        memset(out + 6, 0, RESERVED)
        if columns.status[row]:
            out = put_header_with_status(out + 22, end, topic, columns.status[row])
        else:
            out = put(
                out + 22, end, topic.fleximq_header, topic.block_end, topic.fleximq_header_length
            )
        store64(out, payload_length(form, length), True)
        out += 8
        if form == FORM_EMPTY:
            continue
        if form == FORM_TEXT and length < 32:
            out[0] = <uint8_t>(0xA0 | length)
            out += 1
        elif form != FORM_MESSAGEPACK:
            out = put_head(out, 0xD9 if form == FORM_TEXT else 0xC4, length)
        out = put(out, end, data + columns.value_start[row], data_end, length)


cdef uint8_t *put_header_with_status(
    uint8_t *out, const uint8_t *end, Topic *topic, uint32_t status
) noexcept nogil:
    """Write the header {"topic": ..., "status": ...}, in the order of section 2.2.1."""
    cdef uint32_t length = status_length(status)
    store32(out, topic.fleximq_header_length - 4 + length, True)
    out[4] = 0x82
    out = put(
        out + 5, end, topic.fleximq_header + 5, topic.block_end, topic.fleximq_header_length - 5
    )
    memcpy(out, b"\xA6status", 7)
    if length == 8:
        out[7] = <uint8_t>(status - 1)
    elif length == 9:
        out[7] = 0xCC
        out[8] = <uint8_t>(status - 1)
    else:
        out[7] = 0xCD
        store16(out + 8, <uint16_t>(status - 1), True)
    return out + length


def messagepack_end(const uint8_t[::1] data not None, uint32_t depth_max):
    if depth_max > MESSAGEPACK_DEPTH_MAX:
        raise ValueError(f"depth_max is {depth_max}, allowed are 0 to {MESSAGEPACK_DEPTH_MAX}")
    cdef size_t length = messagepack_length(
        &data[0] if data.shape[0] else NULL, <size_t>data.shape[0], depth_max
    )
    return length or None

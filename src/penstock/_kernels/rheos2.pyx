"""Rheos v2: PUBLISH events to a Batch, rows of any Batch to events, acknowledgments in bulk.

    event           0    1        5           21   22   24    28     28+N   28+N+M
                    ┌────┬────────┬───────────┬────┬────┬─────┬──────┬──────┬───────┐
                    │ FA │ length │ client id │ 02 │ N  │ M   │ name │ data │ CRC32 │
                    └────┴────────┴───────────┴────┴────┴─────┴──────┴──────┴───────┘
    acknowledgment  0    1      2            18
                    ┌────┬──────┬────────────┬───────┐
                    │ AC │ code │ message id │ CRC32 │
                    └────┴──────┴────────────┴───────┘

Integers are little-endian; N is 16 bits wide, M 32. Between Rheos v2 clients events
are delivered unchanged, checksum included, whole runs of frames at once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock._kernels.batch cimport (
    HAS_FRAMES,
    HAS_SENDERS,
    STORED,
    Batch,
    Columns,
    Sender,
    has_room,
    put_sender_uuid,
    sender_index,
)
from penstock._kernels.crc32 cimport crc32_more, crc32_of, crc32_prepare, crc32_tables
from penstock._kernels.delivery cimport Delivery, copy_frames, measure_frames
from penstock._kernels.frame cimport (
    UUID_VARIANT,
    advance,
    has_message_id,
    load16,
    load32,
    message_id_head,
    put,
    same_bytes,
    store16,
    store32,
    store64,
)
from penstock._kernels.names cimport NamesAhead, names_find_ahead, names_look_ahead
from penstock._kernels.scanning cimport Scan
from penstock._kernels.topics cimport Topic, TopicTable, topic_at

from penstock.protocols.rheos2 import RHEOS2, RHEOS_BODY_BYTES_MAX
from penstock.model import message_id

cdef enum:
    NUMBER = 2                     # of the protocol
    MAGIC = 0xFA
    HEADER = 22
    PUBLISH = 2
    BODY_LENGTHS = 6
    CHECKSUM = 4
    ACKNOWLEDGMENT_MAGIC = 0xAC
    ACKNOWLEDGMENT = 22

if RHEOS2.number != NUMBER:
    raise ImportError("the number of Rheos v2 is not the kernel's")

crc32_prepare()


def crc32(const uint8_t[::1] data not None):
    cdef uint32_t checksum = 0
    with nogil:
        checksum = crc32_of(&data[0] if data.shape[0] else NULL, <size_t>data.shape[0])
    return checksum


def crc32_by_tables(const uint8_t[::1] data not None):
    cdef uint32_t state = 0
    with nogil:
        state = crc32_tables(
            0xFFFFFFFF, &data[0] if data.shape[0] else NULL, <size_t>data.shape[0]
        )
    return <uint32_t>~state


def scan(
    object data,
    Py_ssize_t start,
    Batch batch not None,
    TopicTable topics not None,
    Sender sender not None,
    *,
    bint learn_topics=True,
    object permits=None,
    uint32_t body_bytes_max=RHEOS_BODY_BYTES_MAX,
):
    cdef Scan scan = Scan(batch, topics)
    scan.permit(permits)
    scan.learn_topics = learn_topics
    scan.binary_names = True
    scan.bytes_max = body_bytes_max
    return scan.walk(data, start, NUMBER, HAS_SENDERS | HAS_FRAMES, False, sender, run)


cdef size_t run(Scan scan, size_t start) noexcept nogil:
    cdef Columns *columns = &scan.batch.columns
    cdef const uint8_t *data = scan.batch.data
    cdef const uint8_t *frame
    cdef const uint8_t *last_name = NULL
    cdef size_t end = scan.batch.data_length
    cdef size_t expected = 0
    cdef NamesAhead ahead
    cdef uint32_t length, name_length, last_name_length = 0, topic = 0, row
    cdef int sender = 0
    memset(&ahead, 0, sizeof(ahead))
    while end - start >= HEADER + BODY_LENGTHS + CHECKSUM:
        frame = data + start
        length = load32(frame + 1, False)
        if (
            frame[0] != MAGIC
            or frame[21] != PUBLISH
            or length > scan.bytes_max
            or length < BODY_LENGTHS
            or end - start - HEADER - CHECKSUM < length
        ):
            break
        name_length = load16(frame + 22, False)
        if <uint64_t>BODY_LENGTHS + name_length + load32(frame + 24, False) != length:
            break
        if crc32_of(frame, HEADER + length) != load32(frame + HEADER + length, False):
            break
        if name_length != last_name_length or not last_name or not same_bytes(
            frame + 28, last_name, name_length
        ):
            topic = names_find_ahead(&scan.topics.by_binary_name, frame + 28, name_length, &ahead)
            names_look_ahead(
                &scan.topics.by_binary_name,
                frame + 28,
                name_length,
                HEADER + length + CHECKSUM,
                data + end,
                &ahead,
            )
            if not topic:
                return scan.stop_at_unknown(start, start + 28, name_length)
            last_name = frame + 28
            last_name_length = name_length
        sender = sender_index(scan.batch, frame + 5, sender)
        if sender < 0 or not scan.permitted(topic - 1) or not has_room(columns, scan.batch.rows_max):
            break
        row = columns.count
        columns.topic[row] = topic - 1
        columns.sender[row] = <uint16_t>sender
        columns.value_start[row] = <uint32_t>start + 28 + name_length
        columns.value_length[row] = length - BODY_LENGTHS - name_length
        columns.frame_start[row] = <uint32_t>start
        columns.frame_length[row] = HEADER + length + CHECKSUM
        columns.count = row + 1
        start = advance(start, HEADER + length + CHECKSUM, &expected)
    return start


def encode(Batch batch not None, TopicTable topics not None, *, object rows=None):
    cdef Delivery delivery = Delivery(batch, topics, rows)
    if batch.source == NUMBER:
        return delivery.frames(measure_frames, copy_frames)
    return delivery.frames(measure, write)


cdef size_t measure(Delivery delivery) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef const uint32_t *topic = delivery.batch.columns.topic
    cdef size_t size = <size_t>(HEADER + BODY_LENGTHS + CHECKSUM) * delivery.count
    cdef uint32_t position, row
    for position in range(delivery.count):
        row = delivery.row(position)
        size += delivery.batch.columns.value_length[row]
        size += topic_at(chunks, topic[row]).binary_name_length
    return size


cdef void write(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef const uint32_t *topic_id = delivery.batch.columns.topic
    cdef const uint32_t *value_start = delivery.batch.columns.value_start
    cdef const uint32_t *value_length = delivery.batch.columns.value_length
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef uint8_t *frame
    cdef Topic *topic
    cdef bint stored = delivery.batch.source == STORED
    cdef uint32_t position, row, state
    for position in range(delivery.count):
        row = delivery.row(position)
        topic = topic_at(chunks, topic_id[row])
        frame = out
        frame[0] = MAGIC
        store32(frame + 1, BODY_LENGTHS + topic.binary_name_length + value_length[row], False)
        put_sender_uuid(delivery.batch, row, stored, frame + 5)
        frame[21] = PUBLISH
        store16(frame + 22, <uint16_t>topic.binary_name_length, False)
        store32(frame + 24, value_length[row], False)
        out = put(frame + 28, end, topic.binary_name, topic.block_end, topic.binary_name_length)
        if delivery.refers(value_length[row]):
            state = crc32_more(0xFFFFFFFF, frame, out - frame)
            state = ~crc32_more(state, data + value_start[row], value_length[row])
            delivery.refer(out, data + value_start[row], value_length[row])
        else:
            out = put(out, end, data + value_start[row], data_end, value_length[row])
            state = crc32_of(frame, out - frame)
        store32(out, state, False)
        out += CHECKSUM


def acknowledge(uint32_t count, *, uint64_t log_id, uint32_t partition, uint64_t first_offset):
    if not has_message_id(log_id, partition, first_offset) or not has_message_id(
        log_id, partition, first_offset + count
    ):
        message_id(log_id, partition=partition, offset=first_offset)       # raises ValueError,
        message_id(log_id, partition=partition, offset=first_offset + count)   # or this one does
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>count * ACKNOWLEDGMENT)
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(frames)
    cdef uint8_t prefix[10]
    cdef uint32_t prefix_state, row
    prefix[0] = ACKNOWLEDGMENT_MAGIC
    prefix[1] = 0                  # SUCCESS
    store64(prefix + 2, message_id_head(log_id, partition), True)
    prefix_state = crc32_tables(0xFFFFFFFF, prefix, 10)
    for row in range(count):
        memcpy(out, prefix, 10)
        store64(out + 10, UUID_VARIANT | (first_offset + row), True)
        store32(out + 18, ~crc32_tables(prefix_state, out + 10, 8), False)
        out += ACKNOWLEDGMENT
    return frames

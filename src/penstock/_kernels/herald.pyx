"""herald: PUBLISH frames to a Batch, rows of any Batch to MESSAGE frames.

    PUBLISH  0       2      3        7         8
             ┌───────┬──────┬────────┬─────────┬─────────┐
             │ CAFE  │ 0x10 │ length │ channel │ message │
             └───────┴──────┴────────┴─────────┴─────────┘
    MESSAGE  0       2      3        7         8           16
             ┌───────┬──────┬────────┬─────────┬───────────┬─────────┐
             │ CAFE  │ 0x13 │ length │ channel │ timestamp │ message │
             └───────┴──────┴────────┴─────────┴───────────┴─────────┘
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock._kernels.batch cimport STORED, Batch, Columns, Sender, has_room
from penstock._kernels.delivery cimport Delivery
from penstock._kernels.frame cimport advance, load16, load32, load64, store16, store32, store64
from penstock._kernels.scanning cimport Scan
from penstock._kernels.topics cimport NO_CHANNEL, Topic, TopicTable, topic_at

from penstock.protocols.herald import HERALD, HERALD_PAYLOAD_BYTES_MAX

cdef enum:
    NUMBER = 4                     # of the protocol
    MAGIC = 0xCAFE
    HEADER = 7
    PUBLISH = 0x10
    MESSAGE = 0x13
    MESSAGE_HEADER = 16
    MESSAGE_FIELDS = 9             # channel and timestamp

if HERALD.number != NUMBER:
    raise ImportError("the number of herald is not the kernel's")

cdef uint32_t PAYLOAD_BYTES_MAX = HERALD_PAYLOAD_BYTES_MAX


def scan(
    object data,
    Py_ssize_t start,
    Batch batch not None,
    TopicTable topics not None,
    Sender sender not None,
    *,
    str order not None,
    object permits=None,
    uint32_t payload_bytes_max=HERALD_PAYLOAD_BYTES_MAX,
):
    cdef Scan scan = Scan(batch, topics)
    scan.permit(permits)
    scan.bytes_max = payload_bytes_max
    return scan.walk(data, start, NUMBER, 0, order == "big", sender, run)


cdef size_t run(Scan scan, size_t start) noexcept nogil:
    cdef Columns *columns = &scan.batch.columns
    cdef const uint8_t *data = scan.batch.data
    cdef const uint8_t *frame
    cdef size_t end = scan.batch.data_length
    cdef bint big = scan.batch.big
    cdef size_t expected = 0
    cdef uint32_t bytes_max = <uint32_t>scan.bytes_max
    cdef uint32_t length, topic, row
    while end - start > HEADER:
        frame = data + start
        length = load32(frame + 3, big)
        if (
            load16(frame, big) != MAGIC
            or frame[2] != PUBLISH
            or length - 1 >= bytes_max     # 0 wraps around and is refused with the rest
            or end - start - HEADER < length
        ):
            break
        topic = scan.topics.channel_topics[frame[7]]
        if not topic or not scan.permitted(topic - 1) or not has_room(columns, scan.batch.rows_max):
            break
        row = columns.count
        columns.topic[row] = topic - 1
        columns.value_start[row] = <uint32_t>start + HEADER + 1
        columns.value_length[row] = length - 1
        columns.count = row + 1
        start = advance(start, HEADER + length, &expected)
    return start


def encode(Batch batch not None, TopicTable topics not None, *, str order not None, object rows=None):
    cdef Delivery delivery = Delivery(batch, topics, rows)
    delivery.big = order == "big"
    return delivery.frames(measure, write)


cdef size_t measure(Delivery delivery) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef size_t size = 0
    cdef uint32_t position, row, length
    for position in range(delivery.count):
        row = delivery.row(position)
        length = delivery.batch.columns.value_length[row]
        if (
            length > PAYLOAD_BYTES_MAX - MESSAGE_FIELDS
            or topic_at(chunks, delivery.batch.columns.topic[row]).channel == NO_CHANNEL
        ):
            return delivery.refuse(row)
        size += MESSAGE_HEADER + length
    return size


cdef void write(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    cdef const uint32_t *topic = delivery.batch.columns.topic
    cdef const uint32_t *value_start = delivery.batch.columns.value_start
    cdef const uint32_t *value_length = delivery.batch.columns.value_length
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef Topic **chunks = delivery.topics.chunks
    cdef uint64_t timestamp = <uint64_t>delivery.batch.timestamp_us
    cdef const uint8_t *timestamps = NULL          # where each row has its own
    cdef bint big = delivery.big
    cdef uint32_t position, row, length
    if delivery.batch.source == STORED:
        timestamps = delivery.batch.stored.timestamp
    for position in range(delivery.count):
        row = delivery.row(position)
        length = value_length[row]
        if timestamps:
            timestamp = load64(timestamps + 8 * <size_t>row, False)
        store16(out, MAGIC, big)
        out[2] = MESSAGE
        store32(out + 3, MESSAGE_FIELDS + length, big)
        out[7] = <uint8_t>topic_at(chunks, topic[row]).channel
        store64(out + 8, timestamp, big)
        out = delivery.place(
            out + MESSAGE_HEADER, end, data + value_start[row], data_end, length
        )


def group_frames(
    const uint8_t[::1] data not None, *, str order not None, size_t together_max, size_t alone_max
):
    cdef const uint8_t *frames = &data[0] if data.shape[0] else NULL
    cdef size_t size = <size_t>data.shape[0]
    cdef size_t start = 0, end = 0, following
    cdef uint32_t too_large = 0
    cdef bint big = order == "big"
    cdef list groups = []
    while end < size:
        if size - end < HEADER:
            raise ValueError(f"the frames end inside a header, at {end} of {size}")
        following = end + HEADER + load32(frames + end + 3, big)
        if following > size:
            raise ValueError(f"the frame at {end} goes beyond the end, {size}")
        if end > start and (following - start > together_max or following - end > alone_max):
            groups.append((start, end))
            start = end
        if following - end > alone_max:
            too_large += 1
            start = following
        end = following
    if end > start:
        groups.append((start, end))
    return groups, too_large

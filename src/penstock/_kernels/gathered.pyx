"""Frames whose large values stay in the buffer of the batch that they were received in.

Parts alternate, and the even ones may be empty:

    part    0         1        2         3              2·count
            ┌─────────┬────────┬─────────┬────────┬─   ─┬─────────┐
            │ between │ piece  │ between │ piece  │ ... │ between │
            └─────────┴────────┴─────────┴────────┴─   ─┴─────────┘

The system copies the parts from there, by sendmsg(2), so that a value is not copied in the process.
Bytes that the system does not take at once are copied, once for all connections, since the next
read uses the buffer again.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from penstock._kernels.batch cimport Batch

cdef extern from "<sys/socket.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

    cdef struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen

    int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t sendmsg(int descriptor, const msghdr *message, int flags)

cdef enum:
    PARTS_MAX = 256                # of one system call; the system takes up to 1,024


cdef class Gathered:
    def __cinit__(self, Batch batch not None):
        self.batch = batch
        self.loads = batch.loads

    def __dealloc__(self):
        free(self.pieces)

    def __len__(self):
        return <Py_ssize_t>self.size

    cdef uint8_t *allot(self, uint32_t pieces_max, size_t between_max) except NULL:
        """Make room for pieces, and for what is between them, which is written where this points."""
        cdef uint8_t *start
        self.pieces = <Piece *>malloc(pieces_max * sizeof(Piece))
        if not self.pieces:
            raise MemoryError
        self.between = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>between_max)
        start = <uint8_t *>PyBytes_AS_STRING(self.between)
        self.start = start
        return start

    cdef void finish(self, uint32_t count, size_t size) noexcept:
        """Set the number of pieces, and the size of all frames."""
        cdef uint32_t piece
        self.count = count
        self.size = size
        self.end = self.start + size
        for piece in range(count):
            self.end -= self.pieces[piece].length

    cdef int check(self) except -1:
        """Raise RuntimeError if the batch has released the buffer."""
        if self.loads != self.batch.loads:
            raise RuntimeError("the values of these frames have been released")
        return 0

    cdef size_t part(self, size_t index, const uint8_t **data) noexcept nogil:
        """Return the length of a part, and set `data` to its first byte."""
        cdef size_t piece = index // 2
        if index % 2:
            data[0] = self.pieces[piece].data
            return self.pieces[piece].length
        data[0] = self.pieces[piece - 1].at if piece else self.start
        return <size_t>((self.pieces[piece].at if piece < self.count else self.end) - data[0])

    def send(self, int descriptor):
        cdef size_t sent = 0
        self.check()
        self.batch.read()
        try:
            with nogil:
                self.send_from(descriptor, &sent)
        finally:
            self.batch.unread()
        return sent

    cdef ssize_t send_from(self, int descriptor, size_t *sent) noexcept nogil:
        """Send parts until the system takes no more; add up what it took in `sent`."""
        cdef iovec parts[PARTS_MAX]
        cdef msghdr message
        cdef size_t part_count = 2 * <size_t>self.count + 1
        cdef size_t first = 0, skipped = 0, index, used, wanted, length
        cdef const uint8_t *data
        cdef ssize_t taken
        memset(&message, 0, sizeof(message))
        message.msg_iov = parts
        while first < part_count:
            used = wanted = 0
            index = first
            while index < part_count and used < PARTS_MAX:
                length = self.part(index, &data)
                if index == first:
                    data += skipped
                    length -= skipped
                if length:
                    parts[used].iov_base = <void *>data
                    parts[used].iov_len = length
                    wanted += length
                    used += 1
                index += 1
            if not used:
                return 0
            message.msg_iovlen = used
            taken = sendmsg(descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
            if taken < 0:
                if errno == EINTR:
                    continue
                return -1
            sent[0] += <size_t>taken
            if <size_t>taken < wanted:
                return -1
            first = index
            skipped = 0
        return 0

    def copied(self):
        self.keep(0)
        if len(self.kept) != 1:
            self.kept = [b"".join(self.kept)]
        return self.kept[0]

    def rest(self, size_t start):
        cdef size_t position
        cdef list found
        if start > self.size:
            raise ValueError(f"byte {start} of {self.size}")
        self.keep(start)
        position = self.kept_from
        found = []
        for piece in self.kept:
            if position >= start:
                found.append(piece)
            elif position + <size_t>PyBytes_GET_SIZE(piece) > start:
                found.append(memoryview(piece)[start - position:])
            position += <size_t>PyBytes_GET_SIZE(piece)
        return found

    cdef int keep(self, size_t start) except -1:
        """Copy the bytes from `start` on, except those of which a copy is kept."""
        cdef size_t part_count = 2 * <size_t>self.count + 1
        cdef size_t position = 0, length, skipped, left
        cdef size_t index = 0
        cdef const uint8_t *data
        cdef uint8_t *out
        cdef bytes copy
        if self.kept is None:
            self.kept = []
            self.kept_from = self.size
        if start >= self.kept_from:
            return 0
        self.check()
        left = self.kept_from - start
        copy = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>left)
        out = <uint8_t *>PyBytes_AS_STRING(copy)
        while left and index < part_count:
            length = self.part(index, &data)
            skipped = min(length, start - position) if start > position else 0
            position += length
            length = min(length - skipped, left)
            memcpy(out, data + skipped, length)
            out += length
            left -= length
            index += 1
        self.kept.insert(0, copy)
        self.kept_from = start
        return 0

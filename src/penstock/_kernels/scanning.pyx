"""A Scan: one pass over a buffer that fills a batch and interns new topics.

A protocol's run function scans up to the first frame that it cannot take, and returns where that
frame starts; if there is much to scan, without the GIL. If it stopped only at an unknown name, the
name is added and the run resumes, up to SCAN_NEW_NAMES_MAX times.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from penstock._kernels.batch cimport SHORT_BYTES

from penstock.limits import SCAN_NEW_NAMES_MAX as _SCAN_NEW_NAMES_MAX

cdef uint32_t SCAN_NEW_NAMES_MAX = _SCAN_NEW_NAMES_MAX


cdef class Scan:
    def __cinit__(self, Batch batch not None, TopicTable topics not None):
        self.batch = batch
        self.topics = topics

    def __dealloc__(self):
        if self.holds_permits:
            PyBuffer_Release(&self.permits)

    cdef int permit(self, object permits) except -1:
        """Stop the run at topics that are not marked in `permits`; None permits all."""
        if permits is not None:
            PyObject_GetBuffer(permits, &self.permits, PyBUF_SIMPLE)
            self.holds_permits = True
        return 0

    cdef bint learn(self, bytes unknown) except -1:
        """Add the unknown name that stopped the run; return whether to resume."""
        return self.learn_topics and self.topics.learn(unknown, self.binary_names)

    cdef size_t walk(
        self,
        object data,
        Py_ssize_t start,
        uint32_t source,
        uint32_t features,
        bint big,
        Sender sender,
        Run run,
    ) except? 0:
        cdef size_t position = <size_t>start
        cdef uint32_t learned = 0
        self.batch.begin(data, start, source, features, big, sender)
        try:
            while True:
                self.unknown_length = 0
                if self.batch.data_length - position <= SHORT_BYTES:
                    position = run(self, position)
                else:
                    with nogil:
                        position = run(self, position)
                # The caller may yield to others before it continues: new names take time.
                if not self.unknown_length or learned == SCAN_NEW_NAMES_MAX or not self.learn(
                    self.batch.data[self.unknown_start:self.unknown_start + self.unknown_length]
                ):
                    return position
                learned += 1
        finally:
            self.batch.finish()

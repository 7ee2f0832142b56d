"""A Scan: one walk over a buffer that fills a batch and learns topics on the way.

A protocol's run goes on without the GIL until a frame is not for it, and returns where that frame
starts. If it stopped only because a name in the frame is new, the name is learned and the run resumed.
"""

cdef class Scan:
    def __cinit__(self, Batch batch not None, TopicTable topics not None):
        self.batch = batch
        self.topics = topics

    cdef bint learn(self, bytes unknown) except -1:
        """Make a name that stopped the run known; return whether to resume."""
        return self.learn_topics and self.topics.learn(unknown, self.binary_names)

    cdef size_t walk(
        self, object data, Py_ssize_t start, Source source, bint big, Sender sender, Run run
    ) except? 0:
        cdef size_t position = <size_t>start
        self.batch.begin(data, start, source, big, sender)
        try:
            while True:
                self.unknown_length = 0
                with nogil:
                    position = run(self, position)
                if not self.unknown_length or not self.learn(
                    self.batch.data[self.unknown_start:self.unknown_start + self.unknown_length]
                ):
                    return position
        finally:
            self.batch.finish()

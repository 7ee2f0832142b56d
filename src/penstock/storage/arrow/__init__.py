"""The Arrow log: messages in segment files on a local disk."""

"""Hot loops only: the Batch, the topic table, and a scanner and an encoder for each protocol."""

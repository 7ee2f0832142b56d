"""`penstock bench`: measure the throughput and latency of a broker."""

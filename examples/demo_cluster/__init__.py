"""`make demo-cluster`: the brewery on three Kafka brokers, two nodes and a Spark cluster."""

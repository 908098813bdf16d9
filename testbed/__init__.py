"""What tests and benches run against: clocks, clusters and nodes that a test can steer."""

"""What is studied with the testbed: the paper, labs, benchmarks."""

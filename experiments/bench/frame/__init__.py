"""What benchmarks share: options, processes, CPU times, clusters of processes."""

"""What the paper's micro-benchmarks share: their one computation, programs made of it, and clients that call them."""

"""The benchmarks: what is measured, and against which baseline."""

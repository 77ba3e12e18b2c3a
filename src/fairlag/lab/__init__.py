"""The laboratory: experiment files, and later the runs that they describe."""

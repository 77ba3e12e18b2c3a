"""A fleet fitted to its runs: how long tasks really took, how many were lost, and which clients are alike."""

"""A fleet from its runs: how long tasks really took, what was lost, and which clients are alike."""

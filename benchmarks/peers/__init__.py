"""The same work in fairlag, in its peers and in a bare loop: `run.py` measures them all, the others are run by it."""

"""The same work in fairlag, in its peers and in a bare loop. `run.py` runs and measures the others."""

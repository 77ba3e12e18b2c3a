"""Sweeps: what is tried, how a trial is made and judged, which comes next, and what is best."""

"""Bundles: all that is needed to repeat runs, in one zip file; how one is frozen, and how it is verified."""

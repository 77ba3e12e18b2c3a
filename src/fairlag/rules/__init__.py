"""The rules that strategies are composed of, one module a slot."""

from fairlag.rules.rule import mixes_statistics, reads_account, reads_profiles, reads_updates, reads_window, sums_only

__all__ = ["mixes_statistics", "reads_account", "reads_profiles", "reads_updates", "reads_window", "sums_only"]

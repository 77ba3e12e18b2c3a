"""The rules that strategies are composed of, one module a slot."""

from fairlag.rules.rule import reads_account, reads_profiles, reads_updates, reads_window, sums_only

__all__ = ["reads_account", "reads_profiles", "reads_updates", "reads_window", "sums_only"]

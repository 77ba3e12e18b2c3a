"""What runs and fleets mean: audits, comparisons, theory, incentives."""

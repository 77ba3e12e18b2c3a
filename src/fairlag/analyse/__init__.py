"""Analysis of runs and fleets: audits, comparisons, theory, incentives."""

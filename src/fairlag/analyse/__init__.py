"""What runs and fleets mean: fairness, theory, incentives."""

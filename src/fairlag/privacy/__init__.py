"""Who may see what: secure aggregation, and differential privacy with a bill for every client."""

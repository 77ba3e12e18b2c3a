"""What a task computes: models, local training and evaluation; the only modules that use torch directly."""

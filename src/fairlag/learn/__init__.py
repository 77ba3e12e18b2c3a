"""What a task computes: models, local training and evaluation; the only rooms that know torch well."""

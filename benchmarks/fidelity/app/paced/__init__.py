"""A Flower app whose clients take as long as the devices of an experiment file."""

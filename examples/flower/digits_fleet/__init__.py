"""A Flower app that trains digits with a strategy of fairlag."""

"""A real fleet: the runtime that drives the server over Flower's Grid, and what a Flower ClientApp adds to be known."""

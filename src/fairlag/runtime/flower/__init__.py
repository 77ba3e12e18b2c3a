"""A real fleet: the runtime that drives the server over Flower's Grid, and the addition to a Flower ClientApp."""

from fairlag.extras import optional

optional("flwr.app", "flower", "a deployment")

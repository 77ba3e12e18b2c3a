"""A real fleet: the runtime that drives the server over Flower's Grid, and the addition to a Flower ClientApp."""

from importlib.util import find_spec

if find_spec("flwr") is None:
    raise ModuleNotFoundError("a deployment needs Flower: pip install 'fairlag[flower]'", name="flwr")

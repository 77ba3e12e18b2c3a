"""What a Flower ClientApp needs from fairlag; the ServerApp calls `fairlag.deploy`. Needs the extra `flower`.

>>> from flwr.clientapp import ClientApp
>>> import fairlag
>>> app = fairlag.flower.introduced(ClientApp())
"""

from fairlag.runtime.flower.client import introduced

__all__ = ["introduced"]

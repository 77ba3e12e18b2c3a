"""What a Flower ClientApp needs of fairlag; the ServerApp calls `fairlag.deploy`. It needs the extra `flower`.

>>> from flwr.clientapp import ClientApp
>>> import fairlag
>>> app = fairlag.flower.introduced(ClientApp())
"""

from fairlag.runtime.flower.client import introduced

__all__ = ["introduced"]

"""What a Flower ClientApp needs from fairlag, and options of `fairlag.deploy`. Needs the extra `flower`.

>>> from flwr.clientapp import ClientApp
>>> import fairlag
>>> app = fairlag.flower.introduced(ClientApp())
"""

from fairlag.runtime.flower.client import introduced
from fairlag.runtime.flower.gate import Strikes
from fairlag.runtime.flower.masking import masked
from fairlag.runtime.flower.options import KeeperAddress

__all__ = ["KeeperAddress", "Strikes", "introduced", "masked"]

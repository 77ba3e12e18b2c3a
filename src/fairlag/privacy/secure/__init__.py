"""Secure aggregation with a mask keeper: the server learns a weighted mean of updates, and no single update.

A client adds a keystream to its quantised update (`client.py`) and seals the seed of the stream to the keeper
(`seal.py`). The server collects masked updates and asks the keeper for the weighted sum of the keystreams
(`server.py`). The keeper checks the request (`keeper.py`), marks its seeds as used (`used.py`) and answers once.
"""

from fairlag.extras import optional

optional("cryptography.x509", "privacy", "secure aggregation")

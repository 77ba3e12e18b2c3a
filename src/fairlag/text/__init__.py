"""How values are written for people and read: calls such as ``uniform(1, 2)``, numbers, HTML."""

"""Who the clients are: how slow, and when there."""

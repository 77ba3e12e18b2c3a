"""The clients: how long their tasks take, and when they are present."""

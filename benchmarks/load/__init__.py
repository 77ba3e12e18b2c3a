"""How much load does a deployment bear, and `fairlag watch`? In memory, on real nodes, and with many readers."""

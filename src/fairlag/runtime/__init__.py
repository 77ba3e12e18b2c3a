"""Runtimes: they own the clock, send events to the server and execute its commands."""

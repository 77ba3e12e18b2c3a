"""Runtimes: what time it is. They feed the server events and obey its commands."""

"""The state machine and what it owns: events in, commands out; no clock, no thread, no socket, no training."""

"""Replay: what a policy would do to your traffic, before it does it."""

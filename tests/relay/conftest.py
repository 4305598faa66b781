"""Fixtures of this folder."""

from tests.relay.fixtures import book, rig

__all__ = ["book", "rig"]

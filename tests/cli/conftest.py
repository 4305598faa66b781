"""Fixtures of this folder."""

from tests.cli.fixtures import environ, start

__all__ = ["environ", "start"]

"""Fixtures of this folder."""

from tests.orders.fixtures import book, clock, folder, postgres, url

__all__ = ["book", "clock", "folder", "postgres", "url"]

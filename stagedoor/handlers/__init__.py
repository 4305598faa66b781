"""The shop's own handlers, registered like anybody's.

They act on the state of the order as it is, not on the entry that called them:
placement and refund may come in any order, twice, or at once.
"""

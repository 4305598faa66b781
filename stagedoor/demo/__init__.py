"""The demo: a shop that sells, changes and refunds, real workers, and a check of everything at the end.

START READING at `runner`. What is decided is in `programme` (the orders), `plan`
(what happens to them, and when) and `report`; what acts is in `crew` (the
processes), `watch` (their logs), `kill` and `check`; `show` is the screen.
"""

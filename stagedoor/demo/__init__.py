"""The demo: a shop that sells, changes and refunds, real workers, and a check of everything at the end.

START READING at `runner`. The shop, its orders, its processes and the check are
in `stagedoor.rehearsal`; `kill` ends a worker, `report` is what came out, and
`show` is the screen.
"""

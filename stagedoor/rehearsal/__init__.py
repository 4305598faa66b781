"""What the demo and the chaos runs have in common: a shop with real parts, and a check of everything at the end.

What is decided is in `programme` (the orders) and `plan` (what happens to them,
and when); what acts is in `crew` (the processes), `evening` (the shop), `watch`
(the workers' logs), `rest` and `check`.
"""

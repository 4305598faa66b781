"""Chaos runs: the same shop as in the demo, while processes, Redis, the network and clocks fail at random moments.

START READING at `runner`. `faults` decides what fails and when, from a seed;
`injector` does it; `proxy` stands between the processes and Redis; `skewed` is
how a process with another clock is started; `report` is what came out.
"""

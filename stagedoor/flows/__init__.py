"""Flows: plain functions that survive their process.

A flow is run again from the top for each event, and what it has done is
remembered. Start reading in `stagedoor.flows.engine`; what a function may do is
in `stagedoor.core.flow`.
"""

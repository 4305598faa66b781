"""Flows: plain functions that survive their process.

A flow is run again from the top for each event, and what it has done is
remembered. Start reading in `stagedoor.flows.engine`; what a function may do is
in `stagedoor.core.flow`.
"""

from stagedoor.flows.checking import Finding, check_history, check_source
from stagedoor.flows.engine import outbox_call_id
from stagedoor.flows.starting import CallView, Handle, look_up, new_call_id, open_calls, send_signal, start

__all__ = [
    "CallView",
    "Finding",
    "Handle",
    "check_history",
    "check_source",
    "look_up",
    "new_call_id",
    "open_calls",
    "outbox_call_id",
    "send_signal",
    "start",
]

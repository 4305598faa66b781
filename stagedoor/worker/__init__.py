"""The worker: one service per file; start reading at `supervisor`."""

from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.supervisor import ExitCode, StopRequest, WorkerSettings, run_worker
from stagedoor.worker.upkeep import Chore

__all__ = ["Chore", "ExitCode", "HeldDelivery", "StopRequest", "WorkerSettings", "run_worker"]

"""The worker: one service per file; start reading at `supervisor`."""

from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.supervisor import ExitCode, StopRequest, WorkerSettings, run_worker

__all__ = ["ExitCode", "HeldDelivery", "StopRequest", "WorkerSettings", "run_worker"]

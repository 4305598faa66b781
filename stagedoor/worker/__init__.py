"""The worker: one service per file; start reading at `supervisor`."""

from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.parts import Given, WorkerSettings
from stagedoor.worker.stopping import ExitCode, StopRequest, heeding
from stagedoor.worker.supervisor import run_worker
from stagedoor.worker.upkeep import Chore

__all__ = ["Chore", "ExitCode", "Given", "HeldDelivery", "StopRequest", "WorkerSettings", "heeding", "run_worker"]

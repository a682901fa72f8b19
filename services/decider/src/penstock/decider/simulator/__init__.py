"""The simulator: the production core against an arrival trace, in simulated time.

What is exported here is for programs; `penstock simulate` and `penstock tune` are made of the rest.
"""

from penstock.decider.simulator.library import read_trace, simulate
from penstock.decider.simulator.model.load import Trace
from penstock.decider.simulator.model.traces import BadTrace
from penstock.decider.simulator.studies.contenders import UnknownContender
from penstock.decider.simulator.studies.study import SimulationResult

__all__ = ["BadTrace", "SimulationResult", "Trace", "UnknownContender", "read_trace", "simulate"]

"""What this worker was told at its start; declared in `penstock.runtime.assignment`."""

from penstock.runtime.assignment import Assignment

__all__ = ["Assignment"]

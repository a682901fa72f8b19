"""The parts of `make demo`: stage, load, kills, audit, report, picture."""

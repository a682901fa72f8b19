"""The simulated system: load, workers, measurements and the controller under test."""

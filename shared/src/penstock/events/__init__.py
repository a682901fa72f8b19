"""The contracts: every event that leaves a process, and the subjects it leaves on."""

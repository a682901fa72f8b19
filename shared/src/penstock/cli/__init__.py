"""The command `penstock`: one module a noun, and `up`, the whole installation on one machine."""

"""The strategies that ship: one a module, each a pure function from measurements to a demand."""

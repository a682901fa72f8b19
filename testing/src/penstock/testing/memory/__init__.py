"""The bus in memory: a broker in the process of a test, held to the contract of the real one."""

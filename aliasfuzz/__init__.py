"""The public face of the project: every name that a user imports, and the command `aliasfuzz`.

At the end of the data flow: it imports `executor`, `strategies`, `fuzz` and `corpus`, and holds no logic of its own.
"""

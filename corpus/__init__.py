"""The store of failing programs, one JSON file each in `cases/`, and the tests that replay them all.

Last in the data flow: `fuzz` saves a case here, `pytest corpus/` runs it again on its target and compares the outcome
with the recorded state. It imports `executor` and nothing else of ours to read a case.
"""

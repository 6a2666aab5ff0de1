"""Hypothesis strategies that draw a `Program`: dtypes, inputs laid out on storages, views, calls, whole programs.

Second in the data flow: `fuzz` takes the programs from here. They are valid by construction, with inputs that may
alias each other in every way that strides and storage offsets allow. It imports `executor` and nothing else of ours.
"""

"""The harness: runs drawn programs on a target and on eager, compares everything observable, shrinks what differs.

Third in the data flow, between `strategies`, which draws the programs, and `corpus`, which keeps what failed. It holds
the oracle, the campaign, and the tests that are the main job: `pytest fuzz/`.
"""

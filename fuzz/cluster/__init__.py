"""One campaign on many machines: a coordinator, and workers that run batches of programs as `fuzz.campaign` does.

`Coordinator` and `Worker` are plain classes that exchange messages as bytes; `actors` puts each of them into a Ray actor,
which Ray places, restarts, and gives its GPUs. Nothing else here knows of Ray, so nearly all can be tested in one process.
"""

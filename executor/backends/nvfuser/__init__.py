"""Regions as nvFuser fusions. `rules` say what it is sent, `definition` translates, `fusion` compiles and keeps."""

from executor.backends.nvfuser.backend import NvFuser

__all__ = ["NvFuser"]

"""Compiled functions whose inputs require grad: a forward and a backward program, and PyTorch's own graph between them."""

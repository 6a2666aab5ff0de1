"""What makes a program well formed, rule by rule: storages and values, calls and their schemas, results and memory."""

from __future__ import annotations

from executor.validate.rules import validate, validate_geometry

__all__ = ["validate", "validate_geometry"]

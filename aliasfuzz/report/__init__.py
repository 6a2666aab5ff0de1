"""A run as one HTML page that needs nothing else: no network, no scripts, no fonts."""

from aliasfuzz.report.page import ReportError, find_run, write

__all__ = ["ReportError", "find_run", "write"]

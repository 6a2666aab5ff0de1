"""Measurements: throughput, time to find a bug, compile time. Each script prints its table; none is installed."""

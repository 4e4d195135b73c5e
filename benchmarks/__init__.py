"""Benchmarks: side by side in one run, ratios first. `make bench` runs them all; each runs alone too."""

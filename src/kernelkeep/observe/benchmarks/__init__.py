"""Rows of benchmarks: what we need beside what a peer needs for the same work, with the goal."""

UNMEASURED = 77  # the exit status of a script that found no device or peer to measure

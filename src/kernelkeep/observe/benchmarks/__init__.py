"""Rows of benchmarks: what we need beside what a peer needs for the same work, with the goal."""

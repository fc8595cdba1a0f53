"""Programs for many machines: compiled ahead of time, bundled, and sent round."""

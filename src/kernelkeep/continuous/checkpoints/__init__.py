"""Checkpoint files: the state of a run on disk, how files are written, found, checked and described."""

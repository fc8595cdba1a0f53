"""Readers: from a text to the tree, one file per language that users write."""

READERS = ("c", "python_kernel")  # the modules that have a `read_kernel`

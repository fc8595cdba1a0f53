"""Readers: from a text to the tree. c.py reads C, python_kernel.py Python; files whose names begin with these are their parts."""

READERS = ("c", "python_kernel")  # the modules that have a `read_kernel`

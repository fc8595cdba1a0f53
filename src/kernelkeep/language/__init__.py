"""The kernel language: one typed tree, made by readers, checked once, written out for each target.

    types.py       scalars, vectors, arrays, structs, buffers, and C's conversions between them
    nodes.py       variables, expressions, statements and functions
    tree.py        the tree of them, and what holds for every tree that a reader returns
    builtins.py    every function that a body can call without defining it
    readers/       c.py reads a body in C, python_kernel.py a Python function
    checker/       gives every expression a type, makes conversions explicit, and reports mistakes

Nothing here is imported where a compiled program is found in a cache.
"""

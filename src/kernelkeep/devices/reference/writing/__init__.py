"""Writes a typed tree as Python, with all checks inline. One function is one work-item; with barriers it is a generator.

module.py        the whole text: helper functions, the work-item, the loop over the work-items of a group
statements.py    statements
expressions.py   expressions, and calls of built-ins
operations.py    arithmetic and conversions
targets.py       what is assigned to
storage.py       checked reads and writes of memory that work-items share
index_values.py  which variables become an index
code.py          lines, values, check points
"""

"""The checker: readers call it for each thing they have read, and it returns the typed node, or reports what is wrong.

    scopes.py       which name means what, and where
    conversions.py  from the type that an expression has to the one that is needed
    expressions.py  operators, elements and fields
    assignments.py  assignments, and what may be assigned to
    pointers.py     what C writes with pointers, as elements and offsets
    calls.py        helper functions and built-ins
    declarations.py variables, initialisers, array sizes
    constants.py    the values of constant expressions
    order.py        expressions that C leaves the order of open
    flow.py         the paths through a function: results that are missing, statements that are never reached
    barriers.py     barriers that not all work-items of a group reach
    unset_values.py variables that are read before they are set

After a mistake an expression has the type INVALID, which fits everywhere, so that one mistake is reported once. A tree is only
returned where there was none.
"""

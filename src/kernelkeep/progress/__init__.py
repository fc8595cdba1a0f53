"""How far a long call is, shown where people are: a bar on a terminal and in a notebook, lines in a log."""

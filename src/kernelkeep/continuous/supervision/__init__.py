"""Work in a process that is replaced when it dies or hangs: the supervisor, its worker, and what it reports."""

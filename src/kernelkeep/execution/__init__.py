"""HOW, once: jobs, the executor, graphs, and the timeline of what overlapped."""

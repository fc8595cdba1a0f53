"""HOW, forever: state that outlives every kernel, strategies to run it, checkpoints, and supervised workers."""

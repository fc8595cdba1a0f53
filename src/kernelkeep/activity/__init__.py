"""What this process does: what is open in it now, hooks for tracing, and records of what was done."""

"""Places that keep entries as bytes: one file for each kind of place. `tier.py` says what each of them does."""

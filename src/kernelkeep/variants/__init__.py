"""Which variant runs: templates, spaces of variants, their trial, measurement, memory and choice."""

"""What several machines share: places that keep named bytes, leases on them, and signatures. Knows no program and no device."""

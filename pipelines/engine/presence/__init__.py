"""The processes that work in a folder, on whichever machines: signs of life, leases, claims and the lock."""

"""Coordination of the processes that work in a folder, on any machines: signs of life, leases, claims, the lock."""

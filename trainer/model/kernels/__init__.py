"""Attention kernels that give the same results as a pattern's own ``attend``, faster or with less memory."""

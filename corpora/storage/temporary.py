"""Temporary names of files and folders that are being written."""

from __future__ import annotations

import os
import uuid

_MARK = ".tmp-"


def temporary_name(path: str) -> str:
    """Return a name beside ``path`` that no other writer uses."""
    return f"{path}{_MARK}{uuid.uuid4().hex[:12]}"


def is_temporary(path: str) -> bool:
    """Return True for a name made by ``temporary_name``."""
    return _MARK in os.path.basename(path)

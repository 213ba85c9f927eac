"""Beam's flags for object stores (``--s3_endpoint_url``, ...), which every command and worker takes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def use_store_flags(rest: Sequence[str]) -> list[str]:
    """Set up the stores of this process by the flags ``--s3_*``, and return the other arguments.

    For those left out, AWS's variables and profile count.
    """
    from corpora.storage.stores import s3

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in s3.SETTINGS:
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    parser.add_argument("--s3_disable_ssl", action="store_true", default=argparse.SUPPRESS)
    typed, others = parser.parse_known_args(list(rest))
    s3.use_settings(vars(typed))
    return others

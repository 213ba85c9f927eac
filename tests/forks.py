"""The server from which tests fork processes that are to be killed: one of a test session, with Beam imported once.

Python has one fork server a process, and the preload list that is set last wins; so there is one list.
"""

from __future__ import annotations

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["apache_beam", "pipelines.cli"])

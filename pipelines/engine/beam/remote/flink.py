"""Flink's REST service: the state of a job by its name, its last error, and its cancellation.

Beam's job server ends with its driver, and does not always cancel what it has handed to a cluster; Flink itself does.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

ENDED = ("FINISHED", "FAILED", "CANCELED")
_SECONDS = 10


class Flink:
    """A Flink cluster.

    Args:
        address: ``http://host:port``.
    """

    def __init__(self, address: str) -> None:
        self.address = address if "://" in address else f"http://{address}"

    def state(self, name: str) -> str:
        """Return the state of the newest job with a name; empty if there is none.

        Raises:
            OSError: the cluster cannot be reached.
        """
        return str(job["state"]) if (job := self._find(name)) else ""

    def cancel(self, name: str) -> None:
        """Ask for the end of every running job with a name.

        Raises:
            OSError: the cluster cannot be reached.
        """
        for job in self._jobs(name):
            if job["state"] not in ENDED:
                self._ask(f"/jobs/{job['jid']}?mode=cancel", "PATCH")

    def last_error(self, name: str) -> str:
        """The exception that stopped the job or its last attempt, a Java stack trace; empty if there was none.

        Raises:
            OSError: the cluster cannot be reached.
        """
        job = self._find(name)
        if not job:
            return ""
        said = self._ask(f"/jobs/{job['jid']}/exceptions")
        history = (said.get("exceptionHistory") or {}).get("entries") or [{}]
        return str(said.get("root-exception") or history[0].get("stacktrace") or "")

    def _find(self, name: str) -> dict[str, Any]:
        jobs = self._jobs(name)
        return max(jobs, key=lambda job: job["start-time"]) if jobs else {}

    def _jobs(self, name: str) -> Sequence[dict[str, Any]]:
        return [job for job in self._ask("/jobs/overview")["jobs"] if job["name"] == name]

    def _ask(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(self.address.rstrip("/") + path, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            try:
                return json.loads(answer.read() or b"{}")
            except ValueError as error:
                raise OSError(f"{self.address}: its answer is not Flink's") from error


def address_of(master: str | None) -> str:
    """Address of the REST service of ``--flink_master``; empty for a cluster inside the job server."""
    return "" if not master or master.strip() in ("[auto]", "[local]") else Flink(master.strip()).address

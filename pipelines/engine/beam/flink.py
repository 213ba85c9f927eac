"""Flink's REST service: the last error of a job by its name, and its cancellation.

Beam's job server ends with its driver, and does not always cancel what it has handed to a cluster; Flink itself does.
"""

from __future__ import annotations

import json
import time
import urllib.request
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

    def cancel(self, name: str, seconds: float) -> None:
        """End every running job with a name."""
        last = time.monotonic() + seconds
        while running := [job for job in self._jobs(name) if job["state"] not in ENDED]:
            for job in running:
                self._ask(f"/jobs/{job['jid']}?mode=cancel", "PATCH")
            if time.monotonic() > last:
                raise TimeoutError("Flink does not end it")
            time.sleep(0.5)

    def last_error(self, name: str) -> str:
        """The exception that stopped the newest job with a name or its last attempt, a Java trace; empty if there is
        none.
        """
        jobs = self._jobs(name)
        if not jobs:
            return ""
        said = self._ask(f"/jobs/{max(jobs, key=lambda job: job['start-time'])['jid']}/exceptions")
        history = (said.get("exceptionHistory") or {}).get("entries") or [{}]
        return str(said.get("root-exception") or history[0].get("stacktrace") or "")

    def _jobs(self, name: str) -> list[dict[str, Any]]:
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

"""The Hugging Face hub: whether its server can be reached, found out before its client tries for a minute."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import getproxies

from corpora.errors import StoreError

_TIMEOUT = 5.0  # seconds for a name and a connection
_answered: set[str] = set()  # servers that have answered this process


def require_hub(path: str) -> None:
    """Check that the hub can be reached."""
    if not is_reachable():
        cure = "run the command again, or download the files and give their folder"
        raise StoreError(f"{path}: no connection to {_endpoint()}; the hub cannot be reached; {cure}")


def is_reachable() -> bool:
    """Return False if no connection to the hub's server can be made, or ``HF_HUB_OFFLINE`` is set."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and _answers(_endpoint())


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def _answers(url: str) -> bool:
    if url in _answered or getproxies().keys() & {"https", "all"}:  # which may know names that this machine does not
        return True
    parts, answers = urlsplit(url), []

    def connect() -> None:
        port = parts.port or {"http": 80}.get(parts.scheme, 443)
        with suppress(OSError), socket.create_connection((parts.hostname or "", port), timeout=_TIMEOUT):
            answers.append(True)

    thread = threading.Thread(target=connect, daemon=True)  # looking up a name has no time-out
    thread.start()
    thread.join(_TIMEOUT + 1)
    _answered.update([url] * len(answers))
    return bool(answers)

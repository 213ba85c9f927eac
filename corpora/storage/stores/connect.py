"""Clients of object stores (S3, Google's and Azure's), by obstore: their credentials, patience and time-outs."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any

from corpora.errors import FarspanError
from corpora.storage.stores import s3

PATIENCE = "FARSPAN_STORE_PATIENCE"
_PATIENCE = 180.0  # seconds for which a request that fails is repeated
_FIRST = 5.0  # the same until the store has answered once: a wrong address is likelier than an outage
_CONNECT = 3  # seconds for a connection
_LONGEST_WAIT = 10.0  # seconds between two attempts
_METADATA = ("169.254.169.254", 80)  # answers on machines of Amazon, Google and Azure, which have credentials
_process = 0  # number of the process that uses clients
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{,254}")


def patience(answered: bool) -> float:
    """Return for how many seconds a request is repeated: ``$FARSPAN_STORE_PATIENCE``, less before the first answer."""
    text = os.environ.get(PATIENCE, str(_PATIENCE))
    with suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds if answered else min(seconds, _FIRST)
    raise FarspanError(f"{PATIENCE} is {text!r}; give a number of seconds above 0")


def open_client(root: str, answered: bool, timeout: int) -> Any:
    """Open the client for ``scheme://authority``; equal settings share one.

    Args:
        answered: True if the store has answered this process before.
        timeout: seconds after which an attempt at a request is given up.
    """
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise FarspanError(
            f"{root}: a process that was forked cannot use its parent's connections to stores; start it by spawn, as "
            "with DataLoader's multiprocessing_context='spawn'"
        )
    return _open(root, s3.settings() if root.startswith("s3:") else (), patience(answered), timeout)


@lru_cache(maxsize=64)
def _open(root: str, settings: tuple[tuple[str, Any], ...], seconds: float, timeout: int) -> Any:
    retry = {
        "max_retries": 10_000,
        "retry_timeout": timedelta(seconds=seconds),
        "backoff": {"max_backoff": timedelta(seconds=_LONGEST_WAIT)},
    }
    options = {"timeout": timedelta(seconds=timeout), "connect_timeout": timedelta(seconds=_CONNECT)}
    return CLIENTS[root.partition("://")[0]](root, options, retry)


def _open_s3(root: str, options: Any, retry: Any) -> Any:
    from obstore.store import S3Store  # slow to import, and local work does not need it

    bucket = root.removeprefix("s3://")
    if not _BUCKET.fullmatch(bucket):
        raise FarspanError(f"{root}: invalid bucket name; make the bucket, or mend its name or --s3_endpoint_url")
    arguments, client = s3.store_options()
    if not s3.has_credentials() and "credential_provider" not in arguments and not _on_cloud_machine():
        arguments["config"]["skip_signature"] = True  # as public buckets are read
    return S3Store(bucket, **arguments, client_options=options | client, retry_config=retry)


def _open_google(root: str, options: Any, retry: Any) -> Any:
    variables = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY")
    folder = os.environ.get("CLOUDSDK_CONFIG", "~/.config/gcloud")
    has_file = os.path.exists(os.path.expanduser(f"{folder}/application_default_credentials.json"))
    return _open_url(
        root.replace("gcs:", "gs:", 1), {}, has_file or any(map(os.environ.get, variables)), options, retry
    )


def _open_azure(root: str, options: Any, retry: Any) -> Any:
    variables = ("CLIENT_ID", "STORAGE_ACCOUNT_KEY", "STORAGE_SAS_KEY", "FEDERATED_TOKEN_FILE")
    has_variable = any(os.environ.get(f"AZURE_{name}") for name in variables)
    by_cli = not has_variable and os.path.exists(os.path.expanduser("~/.azure"))
    return _open_url(root, {"use_azure_cli": True} if by_cli else {}, by_cli or has_variable, options, retry)


def _open_url(root: str, config: Any, has_credentials: bool, options: Any, retry: Any) -> Any:
    from obstore.store import from_url

    if not has_credentials and not _on_cloud_machine():
        config["skip_signature"] = True
    return from_url(root, config=config, client_options=options, retry_config=retry)


CLIENTS: dict[str, Callable[[str, Any, Any], Any]] = {
    "s3": _open_s3,
    **dict.fromkeys(("gs", "gcs"), _open_google),
    **dict.fromkeys(("abfs", "abfss", "az"), _open_azure),
}
"""Functions that open a client, by scheme: root, options of the client and of its retries -> client."""


@lru_cache(maxsize=1)
def _on_cloud_machine() -> bool:
    """Return True if a cloud's service for its machines answers, which may have credentials."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    with suppress(OSError), socket.create_connection(_METADATA, timeout=1):
        return True
    return False

"""Clients of object stores (S3, Google's and Azure's), by obstore: their credentials, patience and time-outs.

Whether Hugging Face's hub can be reached is found out here, too, before its client tries for a minute.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from corpora.errors import FarspanError, StoreError, from_extra

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

    ``answered``: True if the store has answered this process before. ``timeout``: seconds of an attempt at a request.
    """
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise FarspanError(
            f"{root}: a process that was forked cannot use its parent's connections to stores; start it by spawn, as "
            "with DataLoader's multiprocessing_context='spawn'"
        )
    return _open(root, s3_settings if root.startswith("s3:") else (), patience(answered), timeout)


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
    arguments, client = s3_options()
    if not _has_s3_credentials() and "credential_provider" not in arguments and not _on_cloud_machine():
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


S3_SETTINGS = (  # those that take a value
    *("s3_access_key_id", "s3_secret_access_key", "s3_session_token"),
    *("s3_endpoint_url", "s3_region_name", "s3_verify"),
)
s3_settings: tuple[tuple[str, Any], ...] = ()  # the key of a cache


def use_s3_settings(flags: Mapping[str, Any]) -> None:
    """Set up S3 for this process by Beam's ``--s3_*`` flags; AWS's own variables and profile replace those left out."""
    global s3_settings
    s3_settings = tuple(sorted(flags.items()))


def s3_options() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the settings say of a bucket: arguments of ``S3Store``, and options of its client."""
    flags = dict(s3_settings)
    url = flags.get("s3_endpoint_url") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    scheme, _, host = (url or "").rstrip("/").rpartition("://")
    if flags.get("s3_disable_ssl"):
        scheme = "http"
    config = {
        "access_key_id": flags.get("s3_access_key_id"),
        "secret_access_key": flags.get("s3_secret_access_key"),
        "session_token": flags.get("s3_session_token"),
        "region": flags.get("s3_region_name"),
        "endpoint": host and f"{scheme or 'https'}://{host}",
    }
    arguments: dict[str, Any] = {"config": {name: value for name, value in config.items() if value}}
    client: dict[str, Any] = {"allow_http": scheme == "http"}
    if flags.get("s3_verify"):
        try:
            client["root_certificate"] = Path(flags["s3_verify"]).read_bytes()
        except OSError as error:
            raise FarspanError(f"--s3_verify {error.filename}: {error.strerror}; give certificates") from error
    key = [name for name in ("s3_access_key_id", "s3_secret_access_key") if flags.get(name)]
    if len(key) == 1:
        raise FarspanError(f"only --{key[0]} is given; check --s3_access_key_id and --s3_secret_access_key")
    if not key and not os.environ.get("AWS_ACCESS_KEY_ID") and _has_profile() and (provider := _profile()):
        arguments["credential_provider"] = provider
    return arguments, client


def _has_s3_credentials() -> bool:
    """Return True if flags or AWS's variables name credentials."""
    variables = [f"AWS_CONTAINER_CREDENTIALS_{kind}_URI" for kind in ("FULL", "RELATIVE")]
    variables += ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"]
    return "s3_access_key_id" in dict(s3_settings) or any(map(os.environ.get, variables))


def _has_profile() -> bool:
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    places = (os.path.expanduser(os.environ.get(name, place)) for name, place in files.items())
    return bool(os.environ.get("AWS_PROFILE")) or any(os.path.isfile(place) for place in places)


def _profile() -> Any:
    """Return a provider of the credentials of AWS's profile; None if the profile has none."""
    with from_extra("s3", "AWS's profile"):
        import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.session.Session()
    return Boto3CredentialProvider(session) if session.get_credentials() else None


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

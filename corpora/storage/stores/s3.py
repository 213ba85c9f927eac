"""Settings of S3, and of stores with its protocol, for this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError, from_extra

SETTINGS = (
    "s3_access_key_id",
    "s3_secret_access_key",
    "s3_session_token",
    "s3_endpoint_url",
    "s3_region_name",
    "s3_verify",
)
"""Names of the settings that take a value."""
_settings: tuple[tuple[str, Any], ...] = ()


def use_settings(flags: Mapping[str, Any]) -> None:
    """Set up S3 for this process.

    Args:
        flags: Beam's ``--s3_*`` flags by name (``s3_endpoint_url``, ``s3_access_key_id``, ...); AWS's own variables and
            profile replace those left out.
    """
    global _settings
    _settings = tuple(sorted(flags.items()))


def settings() -> tuple[tuple[str, Any], ...]:
    """Return the settings of this process, as the key of a cache."""
    return _settings


def store_options() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the settings say of a bucket: arguments of ``S3Store``, and options of its client."""
    flags = dict(_settings)
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


def has_credentials() -> bool:
    """Return True if flags or AWS's variables name credentials."""
    variables = [f"AWS_CONTAINER_CREDENTIALS_{kind}_URI" for kind in ("FULL", "RELATIVE")]
    variables += ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"]
    return "s3_access_key_id" in dict(_settings) or any(map(os.environ.get, variables))


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

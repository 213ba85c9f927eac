"""S3, and stores with its protocol: Arrow's client, its settings, and advice for its errors.

Deleting uses boto3, because Arrow makes three requests per file and leaves an empty object in place of the folder.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

from corpora.errors import from_extra
from corpora.storage.stores.exclusive import Unsupported

if TYPE_CHECKING:
    from pyarrow import fs

REPLACED = "it was replaced or deleted while it was read; leave inputs alone while a job runs"
_CURES = {  # words in an error of Arrow or boto3 -> advice
    r"access.?denied|invalid.?access.?key|signature.?does|(expired|invalid).?token|secret_key|access_key|credentials": (
        "check --s3_access_key_id and --s3_secret_access_key, or AWS's own variables or profile, and the key's rights "
        "to list, read, write and delete there"
    ),
    r"network.?connection|could not connect|timeout": "check --s3_endpoint_url and the network; finished work is kept",
    r"no.?such.?bucket|invalid bucket name": "make the bucket, or mend its name or --s3_endpoint_url",
    r"no.?such.?key|resource.?not.?found|invalid.?range|\b416\b": REPLACED,
    r"\b301\b|region": "give the bucket's --s3_region_name",
}
SETTINGS = (
    "s3_access_key_id",
    "s3_secret_access_key",
    "s3_session_token",
    "s3_endpoint_url",
    "s3_region_name",
    "s3_verify",
)
"""Names of the settings that take a value."""
_ATTEMPTS = 3  # of each request
_CONFLICTS = 5  # conflicts after which a conditional request fails
_GONE = ("NoSuchKey", "NotFound", "404")
PART = 32 << 20  # bytes per part of an upload, unless there would be more than _PARTS parts
_PARTS, _SENDERS = 10_000, 4
_settings: tuple[tuple[str, Any], ...] = ()


def use_settings(flags: Mapping[str, Any]) -> None:
    """Set up S3 for this process.

    Args:
        flags: Beam's ``--s3_*`` flags by name (``s3_endpoint_url``, ``s3_access_key_id``, ...); AWS's own variables and
            profile replace those left out.
    """
    global _settings
    _settings = tuple(sorted(flags.items()))


def client() -> fs.S3FileSystem:
    """Return the client for the current settings.

    Raises:
        FarspanError: boto3 is not installed.
    """
    with from_extra("s3", "s3://"):
        import boto3  # noqa: F401
    return _client(_settings)


@lru_cache(maxsize=4)
def _client(settings: tuple[tuple[str, Any], ...]) -> fs.S3FileSystem:
    """Make a client, which threads can share."""
    flags = dict(settings)
    url = flags.get("s3_endpoint_url") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    scheme, _, endpoint = (url or "").rstrip("/").rpartition("://")
    from pyarrow import fs  # loads Arrow's clients, which local work never needs

    return fs.S3FileSystem(
        access_key=flags.get("s3_access_key_id"),
        secret_key=flags.get("s3_secret_access_key"),
        session_token=flags.get("s3_session_token"),
        region=flags.get("s3_region_name"),
        endpoint_override=endpoint or None,
        scheme="http" if scheme == "http" or flags.get("s3_disable_ssl") else "https",
        tls_ca_file_path=flags.get("s3_verify"),
        allow_delayed_open=True,  # one request for a small object instead of three
        connect_timeout=10,
        request_timeout=60,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def delete(bucket: str, keys: list[str]) -> None:
    """Delete objects, a thousand per request; those already gone are no error.

    Raises:
        OSError: the first refusal, with the store's message.
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError: a request failed.
    """
    remove = _boto3_client(_settings).delete_objects
    for start in range(0, len(keys), 1000):
        objects = [{"Key": key} for key in keys[start : start + 1000]]
        for error in remove(Bucket=bucket, Delete={"Objects": objects, "Quiet": True}).get("Errors", ()):
            raise OSError(f"{error['Key']}: AWS Error {error['Code']}: {error['Message']}")


def create_new(bucket: str, key: str, data: bytes) -> bool:
    """Create an object unless it exists; True for exactly one of several processes.

    If the answer to a successful request is lost, the creator may also get False.
    """
    return _put_if(bucket, key, data, IfNoneMatch="*")


def renew(bucket: str, key: str, data: bytes) -> bool:
    """Write an existing object again; False if it is gone."""
    from botocore.exceptions import ClientError

    try:
        tag = _boto3_client(_settings).head_object(Bucket=bucket, Key=key)["ETag"]
    except ClientError as error:
        if error.response["Error"]["Code"] in _GONE:
            return False
        raise
    return _put_if(bucket, key, data, IfMatch=tag)


def upload_new(bucket: str, key: str, local: str) -> bool:
    """Create an object from a local file unless it exists; True for exactly one of several processes.

    Raises:
        Unsupported: the store does not support conditional writes.
    """
    from botocore.exceptions import ClientError

    try:
        if os.path.getsize(local) <= PART:
            with open(local, "rb") as file:
                return _put_if(bucket, key, file.read(), IfNoneMatch="*")
        return _upload_parts(bucket, key, local)
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NotImplemented", "501"):
            raise Unsupported(f"s3://{bucket}: the store refuses If-None-Match") from error
        raise


def _upload_parts(bucket: str, key: str, local: str) -> bool:
    s3, size = _boto3_client(_settings), os.path.getsize(local)
    part = max(PART, -(-size // _PARTS))
    place = {"Bucket": bucket, "Key": key, "UploadId": s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]}

    def send(number: int) -> dict[str, Any]:
        with open(local, "rb") as file:
            file.seek((number - 1) * part)
            answer = s3.upload_part(**place, PartNumber=number, Body=file.read(part))
        sums = {name: value for name, value in answer.items() if name.startswith("Checksum") and name != "ChecksumType"}
        return {"PartNumber": number, "ETag": answer["ETag"], **sums}

    try:
        with ThreadPoolExecutor(_SENDERS) as pool:
            parts = list(pool.map(send, range(1, -(-size // part) + 1)))
        done = _on_condition(
            lambda: s3.complete_multipart_upload(**place, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        )
    except BaseException:
        s3.abort_multipart_upload(**place)
        raise
    if not done:
        s3.abort_multipart_upload(**place)
    return done


def _put_if(bucket: str, key: str, data: bytes, **condition: str) -> bool:
    """Put an object on a condition; False if the condition does not hold."""
    put = _boto3_client(_settings).put_object
    return _on_condition(lambda: put(Bucket=bucket, Key=key, Body=data, **condition))


def _on_condition(request: Callable[[], object]) -> bool:
    """Make a conditional request; False if the condition does not hold."""
    from botocore.exceptions import ClientError

    for attempt in count():
        try:
            request()
            return True
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in ("PreconditionFailed", "412", *_GONE):
                return False
            if code != "ConditionalRequestConflict" or attempt == _CONFLICTS:  # another request for it is under way
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError


@lru_cache(maxsize=4)
def _boto3_client(settings: tuple[tuple[str, Any], ...]) -> Any:
    import boto3

    flags = dict(settings)
    return boto3.session.Session().client(
        "s3",
        region_name=flags.get("s3_region_name"),
        api_version=flags.get("s3_api_version"),
        use_ssl=not flags.get("s3_disable_ssl"),
        verify=flags.get("s3_verify"),
        endpoint_url=flags.get("s3_endpoint_url"),
        aws_access_key_id=flags.get("s3_access_key_id"),
        aws_secret_access_key=flags.get("s3_secret_access_key"),
        aws_session_token=flags.get("s3_session_token"),
    )


def cure(reason: str) -> str | None:
    """Return advice for an error, chosen by words in it."""
    named = reason.rpartition("AWS Error ")[2]  # the key comes before it, and may contain any word
    return next((cure for words, cure in _CURES.items() if re.search(words, named, re.IGNORECASE)), None)

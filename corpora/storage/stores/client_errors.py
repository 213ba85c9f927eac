"""Errors of the stores' clients as one line that names the path and the cure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from corpora.errors import FarspanError, StoreError

REPLACED = "it was replaced or deleted while it was read; leave inputs alone while a job runs"
_RIGHTS = (
    r"access.?denied|forbidden|credential|token|authenticat|authoriz|invalid.?access.?key|signature.?does|permission|"
    r"\b40[13]\b"
)
_NETWORK = r"sending request|dns error|tcp connect|timed? ?out|connection|network"
_CURES = {  # scheme -> words of a client's error -> advice
    "s3": {
        r"no.?such.?bucket|invalid bucket name": "make the bucket, or mend its name or --s3_endpoint_url",
        r"no.?such.?key|invalid.?range|\b41[26]\b": REPLACED,
        _RIGHTS: (
            "check --s3_access_key_id and --s3_secret_access_key, or AWS's own variables or profile, and the key's "
            "rights to list, read, write and delete there"
        ),
        r"\b301\b|region": "give the bucket's --s3_region_name",
        _NETWORK: "check --s3_endpoint_url and the network; finished work is kept",
    },
    "gs|gcs": {
        _RIGHTS: (
            "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`, and "
            "check the account's rights there"
        ),
    },
    "abfss?|az": {
        _RIGHTS: (
            "set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or run `az login`, and check the account's "
            "rights there"
        ),
    },
    "hdfs|viewfs": {
        r"libjvm|libhdfs": (
            "install Hadoop's client and Java, set JAVA_HOME and HADOOP_HOME (or ARROW_LIBHDFS_DIR), and CLASSPATH to "
            "the output of `hadoop classpath --glob`"
        ),
        r"connect|namenode": "check the namenode's name and port, and HADOOP_CONF_DIR",
    },
    ".*": {
        r"could not parse path": "give a name without empty parts",
        _NETWORK: "check the network; finished work is kept",
    },
}
_USERS = rf"{_RIGHTS}|no.?such.?bucket|bucket name|\b301\b|region|parse path"  # errors that no later attempt mends


class Unsupported(FarspanError):
    """A store lacks an operation."""


@contextmanager
def explain_errors(path: str) -> Iterator[None]:
    """Convert errors of the clients inside the ``with`` block to ``FarspanError`` or ``FileNotFoundError``.

    A later attempt may succeed after a ``StoreError``; ``NotADirectoryError`` stays as it is.
    """
    try:
        yield
    except (FarspanError, NotADirectoryError):
        raise
    except ImportError as error:
        raise FarspanError(f"{path}: {error}") from error
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise refusal(path, error) from error
        raise FileNotFoundError(f"{path}: no such file") from error
    except Exception as error:
        raise refusal(path, error) from error


def refusal(path: str, error: Exception) -> FarspanError:
    """Return the error for a path that a store refuses, with advice chosen by words of the client's error."""
    reason, words = _reason(str(error) or type(error).__name__)
    cure = next(
        (
            advice
            for schemes, cures in _CURES.items()
            if re.fullmatch(schemes, path.partition("://")[0])
            for pattern, advice in cures.items()
            if re.search(pattern, words, re.IGNORECASE)
        ),
        "finished work is kept: try again",
    )
    kind = FarspanError if re.search(_USERS, words, re.IGNORECASE) else StoreError
    return kind(f"{path}: {reason}; {cure}")


def status(error: Exception) -> int:
    """Return the HTTP status with which a store answered; 0 if no answer came."""
    code = re.search(r"status: (\d{3})", str(error))
    return 404 if isinstance(error, FileNotFoundError) else int(code[1]) if code else 0


def is_definite(error: Exception) -> bool:
    """Return True if obstore says that it made a conditional request once, so that no earlier answer was lost."""
    return status(error) == 412 and re.search(r"retries: 0\b", str(error)) is not None


def is_passing(error: Exception) -> bool:
    """Return True for an error of the network, or of a store's server, that a later attempt may not meet."""
    of_store = type(error).__module__.startswith("obstore") or isinstance(error, TimeoutError)
    code = status(error)
    return of_store and (code in (0, 409, 429) or code >= 500) and code != 501


def _reason(text: str) -> tuple[str, str]:
    """Return the reason in a client's error, and its part that holds no key: keys may contain any word."""
    text, _, debug = text.partition("dlopen(")[0].partition("\n\nDebug source:")  # Arrow lists where it looked for Java
    request, _, answer = text.rpartition(" - ")
    request = re.sub(r"^.*?(?=Error performing [A-Z]+ )| in [\d.]+.?s(, after .*)?$", "", request, flags=re.DOTALL)
    code, message = (re.search(f"<{name}>(.*?)</{name}>", answer, re.DOTALL) for name in ("Code", "Message"))
    if code:
        answer = f"{code[1]}: {message[1]}" if message else code[1]
    if request:
        answer += "".join(f", {cause}" for cause in re.findall(r'"(dns error|tcp connect error)"', debug)[:1])
    reason = " ".join((f"{request}: {answer}" if request else answer).split()).rstrip(".: ")
    return textwrap.shorten(reason, 500, placeholder=" ..."), answer

"""Advice for errors of stores other than S3, most often about missing credentials."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import lru_cache

from corpora.errors import FarspanError

_CURES = {  # scheme -> words of a client's error -> advice
    r"gs|gcs": {
        r"oauth2|access token|credentials|authenticat|permission|forbidden|\b40[13]\b": (
            "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`, and "
            "check the account's rights there"
        ),
    },
    r"abfss?": {
        r"credential|authenticat|authoriz|\b40[13]\b": (
            "set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or run `az login`, and check the account's "
            "rights there"
        ),
    },
    r"hdfs|viewfs": {
        r"libjvm|libhdfs": (
            "install Hadoop's client and Java, set JAVA_HOME and HADOOP_HOME (or ARROW_LIBHDFS_DIR), and CLASSPATH to "
            "the output of `hadoop classpath --glob`"
        ),
        r"connect|namenode": "check the namenode's name and port, and HADOOP_CONF_DIR",
    },
}
_PROBE = "import sys; from pyarrow import fs; s, p = fs.FileSystem.from_uri(sys.argv[1]); s.get_file_info(p)"


def cure(path: str, reason: str) -> str | None:
    """Return advice for an error of the client for a path's scheme, chosen by words in the error."""
    scheme = path.partition("://")[0]
    for schemes, cures in _CURES.items():
        if re.fullmatch(schemes, scheme):
            return next((advice for words, advice in cures.items() if re.search(words, reason, re.IGNORECASE)), None)
    return None


@lru_cache(maxsize=16)
def require_azure(root: str) -> None:
    """Try Azure's client in another process, because without credentials it aborts the process it runs in.

    Raises:
        FarspanError: there are no credentials.
    """
    probe = subprocess.run([sys.executable, "-c", _PROBE, f"{root}/"], capture_output=True, text=True, check=False)
    if probe.returncode < 0:
        raise FarspanError(f"{root}: no credentials for Azure were found; {cure(root, 'credentials')}")

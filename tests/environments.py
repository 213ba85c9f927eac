"""Folders with packages that only some tests need, without their dependencies on other versions than farspan's.

``python -m tests.environments NAME ...`` installs some into the user's cache, at the given versions. They are used
beside the packages of this environment, among them torch, so they stay small.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farspan"

ENVIRONMENTS: Mapping[str, Sequence[str]] = {
    "megatron": ("megatron-core==0.16.1",),
    "mds": (
        "mosaicml-streaming==0.13.0",
        "brotli==1.2.0",
        "catalogue==2.0.10",
        "python-snappy==0.7.3",
        "cramjam==2.11.0",
        "xxhash==3.6.0",
        "zstd==1.5.7.2",
    ),
    "olmo": (
        "ai2-olmo-core==3.0.0",
        "bettermap==1.3.1",
        "cached-path==1.8.1",
        "dataclass-extensions==0.2.3",
        "google-api-core",
        "google-auth",
        "google-cloud-core",
        "google-cloud-storage",
        "google-crc32c",
        "google-resumable-media",
        "googleapis-common-protos",
        "pyasn1",
        "pyasn1-modules",
        "proto-plus",
    ),
    "datatrove": ("datatrove==0.10.1", "loguru==0.7.3", "humanize"),
    "litdata": ("litdata==0.2.76", "lightning-utilities==0.15.2", "tifffile"),
    "triton": ("triton==3.7.1",),
}

# mosaicml-streaming needs two names of torchvision, whose wheels replace torch's CPU build
STUBS: Mapping[str, Mapping[str, str]] = {
    "mds": {
        "torchvision/__init__.py": "",
        "torchvision/datasets.py": "class VisionDataset: ...\n",
        "torchvision/transforms/__init__.py": "",
        "torchvision/transforms/functional.py": "def to_tensor(image): raise NotImplementedError\n",
    }
}


def environment(name: str) -> Path | None:
    """Return the folder with the packages of an environment; None if they are not installed there."""
    folder = CACHE / "environments" / name
    return folder if (folder / ".installed").exists() else None


def install(name: str) -> None:
    """Install the packages of an environment.

    Raises:
        CalledProcessError: pip cannot get them.
    """
    folder = CACHE / "environments" / name
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
    subprocess.run([*pip, *ENVIRONMENTS[name]], check=True)
    for file, text in STUBS.get(name, {}).items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / ".installed").touch()


def main() -> None:
    for name in sys.argv[1:]:
        if environment(name):
            continue
        try:
            install(name)
        except subprocess.CalledProcessError as error:
            print(f"{name}: pip ended with status {error.returncode}, so its tests are skipped", file=sys.stderr)


if __name__ == "__main__":
    main()

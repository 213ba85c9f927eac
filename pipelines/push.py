"""``farspan push``: publish an artefact or an exported model on the Hugging Face hub.

huggingface_hub sends the files, many of them in several commits; those that the hub already has are not sent again, so
the same command resumes a stopped push. The manifest comes last, because a folder without one counts as unfinished.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from corpora.errors import FarspanError, first_line
from corpora.printing import format_count
from corpora.readers.load_dataset import is_network_error
from corpora.reporting import note, result
from corpora.storage import files
from corpora.storage.manifest_file import NAMES, file_info, read_manifest
from pipelines.options import Push

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

_LAST = ("README.md", *NAMES)
_TARGET = re.compile(r"hf://(datasets/)?([\w.-]+/[\w.-]+)(?:@([\w.-]+))?(?:/(.+?))?/?")


class Target(NamedTuple):
    """A folder of a repository of the hub."""

    kind: str
    name: str
    branch: str
    folder: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse ``hf://[datasets/]OWNER/NAME[@BRANCH][/FOLDER]``."""
        match = _TARGET.fullmatch(text)
        if match is None or match[2].startswith("datasets/"):
            raise FarspanError(
                f"{text}: not a place on the hub; give hf://datasets/OWNER/NAME, or hf://OWNER/NAME (model)"
            )
        return cls("dataset" if match[1] else "model", match[2], match[3] or "main", match[4] or "")

    def place(self, name: str) -> str:
        """Return the path of a file of the folder in the repository."""
        return f"{self.folder}/{name}" if self.folder else name


class Local(NamedTuple):
    """A file to publish: its place in the repository, and its contents."""

    path: str
    name: str
    bytes: int
    sha256: str

    def equals(self, there: RepoFile | None) -> bool:
        """True if the repository has the same bytes under this name."""
        if there is None or there.size != self.bytes:
            return False
        if there.lfs:
            return there.lfs.sha256 == self.sha256
        from huggingface_hub.utils.sha import git_hash

        return there.blob_id == git_hash(files.read_bytes(self.path))


class Pushed(NamedTuple):
    """Numbers of a push: files sent, their bytes, and files that the hub already had."""

    sent: int
    bytes: int
    present: int


def command(options: Push) -> None:
    """Run ``farspan push``."""
    pushed = push(options.artefact, options.target, private=options.private, message=options.message, report=note)
    result(
        f"{options.target}: {format_count(pushed.sent, 'file')} sent ({format_count(pushed.bytes, 'byte')}), "
        f"{format_count(pushed.present, 'file')} already there",
        target=options.target,
        **pushed._asdict(),
    )


def push(
    artefact: str | os.PathLike[str],
    target: str,
    *,
    private: bool = False,
    message: str | None = None,
    report: Callable[[str], None] = print,
) -> Pushed:
    """Publish a folder on the Hugging Face hub; see ``Push``.

    The repository is created if it is missing. Files of an earlier push in the artefact's own folders that are no
    longer part of the artefact are deleted.

    Args:
        report: called with a message before files are sent.

    Raises:
        FarspanError: the artefact is unfinished or damaged, or the hub refuses or cannot be reached.
    """
    from huggingface_hub import CommitOperationDelete, HfApi

    folder, to = os.fspath(artefact).rstrip("/"), Target.parse(target)
    local = _artefact_files(folder) if to.kind == "dataset" else _model_files(folder)
    with _explain_errors(target):
        api = HfApi()
        api.create_repo(to.name, repo_type=to.kind, private=private or None, exist_ok=True)
        if to.branch != "main":
            api.create_branch(to.name, repo_type=to.kind, branch=to.branch, exist_ok=True)
        remote = _remote_files(api, to)
        missing = [file for file in local if not file.equals(remote.get(file.name))]
        first = [file for file in missing if file.name not in _LAST]
        gone = _stale(local, remote)
        if first and "manifest.json" in remote:
            gone.insert(0, "manifest.json")  # the folder counts as unfinished until the manifest is there again
            missing += [file for file in local if file.name == "manifest.json" and file not in missing]
        place: dict[str, Any] = {
            "repo_id": to.name,
            "repo_type": to.kind,
            "revision": to.branch,
            "commit_message": message or f"Add {os.path.basename(folder)}",
        }
        if gone:
            api.create_commit(operations=[CommitOperationDelete(to.place(name)) for name in gone], **place)
        for batch in (first, [file for file in missing if file.name in _LAST]):
            if batch:
                size = sum(file.bytes for file in batch)
                report(f"{target}: sends {format_count(len(batch), 'file')}, {format_count(size, 'byte')}")
                api.upload_folder(
                    folder_path=folder,
                    path_in_repo=to.folder,
                    allow_patterns=sorted({_pattern(file.name) for file in batch}),
                    ignore_patterns=[".*", "*/.*"],
                    **place,
                )
    return Pushed(len(missing), sum(file.bytes for file in missing), len(local) - len(missing))


def _pattern(name: str) -> str:
    """The pattern of a file at the top, or of its folder at the top: the hub's client skips files that are there."""
    top, slash, _ = name.partition("/")
    return glob.escape(top) + ("/*" if slash else "")


def _artefact_files(folder: str) -> list[Local]:
    """List the files of a finished artefact, compared with the checksums of its manifest."""
    manifest = read_manifest(folder)
    known = {f"shards/{shard.name}": shard.sha256 for shard in manifest.shards}
    known |= {name: info.sha256 for name, info in manifest.files.items()}
    listed = [_local(folder, name) for name in sorted({*known, *_LAST}) if files.exists(os.path.join(folder, name))]
    sums = {file.name: file.sha256 for file in listed}
    for name, sha256 in known.items():
        # the card may be edited by hand, as the hub itself does
        if sums.get(name) != sha256 and name != "README.md":
            raise FarspanError(f"{folder}/{name}: not as the manifest says; `farspan verify {folder}` lists all faults")
    return listed


def _model_files(folder: str) -> list[Local]:
    """The files of a model in Hugging Face's layout."""
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise FarspanError(
            f"{folder}: no config.json; a model is published as `farspan convert --to huggingface` writes it, and an "
            "artefact as a data set: hf://datasets/OWNER/NAME"
        )
    names = [os.path.relpath(path, folder) for path in files.walk(folder)]
    return [_local(folder, name) for name in names if not any(part.startswith(".") for part in name.split("/"))]


def _local(folder: str, name: str) -> Local:
    path = os.path.join(folder, name)
    with files.open(path) as file:
        info = file_info(file)
    return Local(path, name, info.bytes, info.sha256)


def _remote_files(api: HfApi, to: Target) -> dict[str, RepoFile]:
    """Map the names of files below the target's folder to the hub's information about them."""
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.hf_api import RepoFile

    prefix = f"{to.folder}/" if to.folder else ""
    try:
        tree = list(
            api.list_repo_tree(to.name, to.folder or None, recursive=True, repo_type=to.kind, revision=to.branch)
        )
    except EntryNotFoundError:
        return {}
    return {entry.path.removeprefix(prefix): entry for entry in tree if isinstance(entry, RepoFile)}


def _stale(local: Sequence[Local], remote: Mapping[str, RepoFile]) -> list[str]:
    """List files of an earlier push in the folders of the artefact that are no longer part of it."""
    names = {file.name for file in local}
    folders = {name.split("/")[0] for name in names if "/" in name}
    return sorted(name for name in remote if name not in names and "/" in name and name.split("/")[0] in folders)


@contextmanager
def _explain_errors(target: str) -> Iterator[None]:
    """Convert errors of the hub to one line."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except FarspanError:
        raise
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        cure = "run the command again to resume"
        if status in (401, 403, 404):
            cure = "log in with `hf auth login`, or set HF_TOKEN to a token that may write there"
        raise FarspanError(f"{target}: the hub refuses ({first_line(error).rstrip('. ')}); {cure}") from error
    except Exception as error:
        reason = first_line(error.__cause__ or error).rstrip(". ")
        if is_network_error(error):
            reason = f"the hub cannot be reached ({reason})"
        raise FarspanError(f"{target}: {reason}; run the command again to resume") from error

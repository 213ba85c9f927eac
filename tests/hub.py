"""A stand-in of the Hugging Face hub on this machine: the endpoints that ``huggingface_hub`` uses for farspan.

It is no hub: it knows repositories of models and data sets with one branch, stores contents in memory and checks no
token. The requests and answers are those of huggingface_hub 2.4 without Xet.
"""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_LARGE = (".arrow", ".bin", ".safetensors", ".gz")


class Hub:
    """The stand-in, on a free port of 127.0.0.1.

    Attributes:
        repos: ``datasets/OWNER/NAME`` or ``models/OWNER/NAME`` -> path -> contents.
        commits: operations of each commit, as (kind, path).
        objects: sha256 -> contents of large files that were sent, in a commit or not yet.
        requests: (method, path) of each request.
        failing: method and path of the next request to answer with status 500, or another one.
    """

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.commits: list[list[tuple[str, str]]] = []
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.failing: dict[tuple[str, str], int] = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub._serve(self)

            do_HEAD = do_POST = do_PUT = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def connect(self, monkeypatch: Any) -> None:
        """Let ``huggingface_hub`` and ``fsspec`` of this process talk to the stand-in."""
        import datasets
        import huggingface_hub.constants as constants
        from huggingface_hub import HfFileSystem

        from corpora.storage.stores import remote

        monkeypatch.setattr(constants, "ENDPOINT", self.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", self.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", self.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)  # it may have been imported without a network
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        HfFileSystem.clear_instance_cache()
        remote._open.cache_clear()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        method = request.command
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.requests.append((method, path))
        status = self.failing.pop((method, path), 0)
        if status:
            self._answer(request, status, {"error": "as the test wants"})
        elif "/resolve/" in path:
            self._file(request, path)
        elif method == "PUT":
            self.objects[path.rpartition("/")[2]] = body
            self._answer(request, 200, {})
        else:
            self._answer(request, *self._call(path, body))

    def _call(self, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            kind = f"{asked.get('type') or 'model'}s"
            name = f"{kind}/{asked.get('organization') or 'me'}/{asked['name']}"
            if name in self.repos:
                return 409, {"error": "exists", "url": f"{self.url}/{name}"}
            self.repos[name] = {}
            return 200, {"url": f"{self.url}/{name}"}
        if path == "/api/validate-yaml":
            return 200, {"warnings": [], "errors": []}
        if path.endswith(".git/info/lfs/objects/batch"):
            return 200, {"transfer": "basic", "objects": [self._upload(one) for one in json.loads(body)["objects"]]}
        _, _, kind, owner, name, *rest = path.split("/")
        repo = self.repos.get(f"{kind}/{owner}/{name}")
        if repo is None:
            return 404, {"error": "Repository not found"}
        action = rest[0] if rest else "revision"
        if action == "revision":
            siblings = [{"rfilename": one} for one in sorted(repo)]
            return 200, {"id": f"{owner}/{name}", "sha": self.sha(repo), "siblings": siblings, "private": False,
                         "downloads": 0, "likes": 0, "tags": [], "disabled": False, "gated": False}  # fmt: skip
        if action == "tree":
            return self._tree(repo, "/".join(rest[2:]))
        if action == "paths-info":
            paths = json.loads(body)["paths"]
            return 200, [self._entry(one, repo[one]) for one in paths if one in repo]
        if action == "preupload":
            named = [one["path"] for one in json.loads(body)["files"]]
            modes = [{"path": one, "uploadMode": "lfs" if one.endswith(_LARGE) else "regular", "shouldIgnore": False}
                     for one in named]  # fmt: skip
            return 200, {"files": modes}
        if action == "commit":
            place = f"{owner}/{name}" if kind == "models" else f"{kind}/{owner}/{name}"
            status, value = self._commit(repo, [json.loads(line) for line in body.splitlines()])
            return status, {**value, "commitUrl": f"{self.url}/{place}/commit/{self.sha(repo)}"}
        return 404, {"error": f"the stand-in knows no {path}"}

    @staticmethod
    def sha(repo: dict[str, bytes]) -> str:
        """The commit of a repository: a hash of its contents."""
        return hashlib.sha1(repr(sorted(repo.items())).encode()).hexdigest()

    def _upload(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["oid"] in self.objects:
            return asked
        return {**asked, "actions": {"upload": {"href": f"{self.url}/lfs/{asked['oid']}"}}}

    def _tree(self, repo: dict[str, bytes], folder: str) -> tuple[int, Any]:
        """All entries below a folder; also where only its direct ones were asked for, as no caller minds."""
        prefix = f"{folder}/" if folder else ""
        found = {path: data for path, data in repo.items() if path.startswith(prefix)}
        if folder and not found:
            return 404, {"error": "Entry not found"}
        folders = {path.rpartition("/")[0] for path in found if "/" in path[len(prefix) :]}
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": one} for one in sorted(folders)]
        return 200, entries + [self._entry(path, data) for path, data in sorted(found.items())]

    def _entry(self, path: str, data: bytes) -> dict[str, Any]:
        entry = {
            "type": "file",
            "path": path,
            "size": len(data),
            "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
        }
        if path.endswith(_LARGE):
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return entry

    def _commit(self, repo: dict[str, bytes], lines: list[dict[str, Any]]) -> tuple[int, Any]:
        done = []
        for line in lines:
            kind, value = line["key"], line["value"]
            if kind == "file":
                repo[value["path"]] = base64.b64decode(value["content"])
            elif kind == "lfsFile":
                repo[value["path"]] = self.objects[value["oid"]]
            elif kind == "deletedFile":
                del repo[value["path"]]
            if kind != "header":
                done.append((kind, value["path"]))
        self.commits.append(done)
        return 200, {"commitOid": self.sha(repo), "success": True}

    def _file(self, request: BaseHTTPRequestHandler, path: str) -> None:
        name, _, rest = path.strip("/").partition("/resolve/")
        data = self.repos.get(name, {}).get(rest.partition("/")[2])
        if data is None:
            self._answer(request, 404, {"error": "Entry not found"})
            return
        asked = request.headers.get("Range")
        start, stop = 0, len(data)
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(len(data), int(last or len(data) - 1) + 1)
        request.send_response(206 if asked else 200)
        if asked:
            request.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        request.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        request.send_header("X-Repo-Commit", self.sha(self.repos[name]))
        request.send_header("Content-Length", str(stop - start))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data[start:stop])

    def _answer(self, request: BaseHTTPRequestHandler, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        request.send_response(status)
        if status == 404:
            code = "EntryNotFound" if "Entry" in value["error"] else "RepoNotFound"
            request.send_header("X-Error-Code", code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)

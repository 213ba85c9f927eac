"""Files below folders and by globs: Python's glob where there are no links, each folder once where there are."""

from __future__ import annotations

import glob
import os
import random
import socket

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.shards import map_shard
from corpora.storage.stores.file_search import files_below, files_matching
from corpora.storage.stores.local_disk import DanglingLink, NotAFile

PATTERNS = [
    *("*", "**", "**/*", "*/*", "a/*", "a/**", "**/a/*", "**/*.txt", "a*/?/*", "**/a/**", "**/a/**/*.txt", ".h/*"),
    *("*/.h/*", "**/.*", "[ab]/*.txt", "a/b/x.txt", "*/a/**/b/*", "**/**/x.txt", "[!a]*/**", "none/*"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    draw = random.Random(0)
    top = tmp_path_factory.mktemp("tree")
    for _ in range(300):
        folder = top.joinpath(*(draw.choice(["a", "b", "ab", ".h", "c.d"]) for _ in range(draw.randint(0, 3))))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / draw.choice(["x.txt", "y.json", ".z", "w"])).touch()
    return top


@pytest.mark.parametrize("pattern", PATTERNS)
def test_without_links_a_glob_is_what_it_is_in_python(tree, pattern):
    found = files_matching(f"{tree}/{pattern}")
    expected = {path for path in glob.glob(f"{tree}/{pattern}", recursive=True) if os.path.isfile(path)}
    assert (found.paths, found.repeated) == (sorted(expected), [])


def test_without_links_a_folder_holds_what_it_does_in_python(tree):
    expected = [os.path.join(top, name) for top, _, names in os.walk(tree) for name in names]
    assert files_below(str(tree)).paths == sorted(expected)


@pytest.fixture
def linked(tmp_path):
    """Two folders, a link to the first beside them, one from outside, two circles and three links to files."""
    top = tmp_path / "top"
    for folder in (top / "m", top / "z" / "deep", tmp_path / "outside"):
        folder.mkdir(parents=True)
        (folder / "x.txt").touch()
    os.symlink("m", top / "a")
    os.symlink(tmp_path / "outside", top / "b")
    os.symlink(tmp_path / "outside", top / "c")
    os.symlink("..", top / "z" / "up")
    os.symlink(top / "z", top / "z" / "deep" / "circle")
    os.symlink("m/x.txt", top / "file.txt")
    return top


def test_each_folder_is_read_once_under_its_own_name_before_a_links(linked):
    found = files_below(str(linked))
    assert [os.path.relpath(path, linked) for path in found.paths] == ["b/x.txt", "file.txt", "m/x.txt", "z/deep/x.txt"]
    assert [os.path.relpath(path, linked) for path in found.repeated] == ["a", "c", "z/deep/circle", "z/up"]


@pytest.mark.parametrize("pattern", ["**/*.txt", "**", "**/**/x.txt", "*/*.txt"])
def test_globs_follow_the_same_rule(linked, pattern):
    found = files_matching(f"{linked}/{pattern}")
    assert len({os.path.realpath(path) for path in found.paths if path.endswith("/x.txt")}) == len(
        [path for path in found.paths if path.endswith("/x.txt")]
    )
    assert f"{linked}/m/x.txt" in found.paths
    assert f"{linked}/a/x.txt" not in found.paths
    assert f"{linked}/b/x.txt" in found.paths
    assert f"{linked}/a" in found.repeated


def test_a_glob_that_names_a_link_reads_it(linked):
    for pattern in ("a/*.txt", "**/a/*.txt"):
        assert files_matching(f"{linked}/{pattern}").paths == [f"{linked}/a/x.txt"]


def test_folders_full_of_links_to_each_other_end(tmp_path):
    names = [f"{number:02d}" for number in range(12)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
        for other in names:
            os.symlink(tmp_path / other, tmp_path / name / f"to{other}")
    expected = [str(tmp_path / name / "x") for name in names]
    assert files_below(str(tmp_path)).paths == expected
    found = files_matching(f"{tmp_path}/**/x")
    assert (found.paths, len(found.repeated)) == (expected, 144)


def test_a_folder_that_cannot_be_listed_is_an_error(tree, monkeypatch):
    def scandir(folder):
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(FarspanError, match="cannot be listed"):
        files_below(str(tree))


def test_pipes_sockets_devices_and_dangling_links_are_found_and_never_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nowhere", tmp_path / "dangling")
    os.symlink("circle", tmp_path / "circle")
    os.symlink("/dev/zero", tmp_path / "device")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        found = files_below(str(tmp_path)).paths
        assert [os.path.basename(path) for path in found] == ["circle", "dangling", "device", "pipe", "socket"]
        assert files_matching(f"{tmp_path}/*").paths == found
        for path in found:
            with pytest.raises(OSError) as refused:
                files.size(path)
            kind = DanglingLink if os.path.basename(path) in ("circle", "dangling") else NotAFile
            assert type(refused.value) is kind
            with pytest.raises(OSError):
                files.open(path)
            with pytest.raises(FarspanError, match=os.path.basename(path)):
                map_shard(path)

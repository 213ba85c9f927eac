"""Remote stores, in memory and of fsspec: reading, schemes, credentials, errors; files below folders and by globs."""

import glob
import io
import os
import random
import socket

import fsspec
import pytest

from corpora.errors import FarspanError, StoreError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.shards import map_shard
from corpora.storage.stores import connect, remote
from corpora.storage.stores.local_disk import DanglingLink, NotAFile, files_below, files_matching

FILES = {name: name.encode() for name in ("x/1.jsonl", "x/y/2.jsonl", "x.jsonl", "z [1]/3.jsonl")}


@pytest.fixture(params=["memory", "attic"])
def place(request, attic):
    """A folder on a remote store with ``FILES``, and what writes a file there."""
    write = attic.pipe if request.param == "attic" else write_bytes
    for name, data in FILES.items():
        write(f"{request.param}://bucket/folder/{name}", data)
    return f"{request.param}://bucket/folder", write


def test_the_local_disk_finds_the_same(place, tmp_path):
    roots = (place[0], str(tmp_path))
    for name, data in FILES.items():
        write_bytes(f"{tmp_path}/{name}", data)
    for call, below in (
        *(("walk", below) for below in ("", "/x", "/z [1]", "/none", "/x.jsonl/none")),
        *(("match", below) for below in ("/*.jsonl", "/x/*", "/**/*.jsonl", "/none*")),
        *(("names", below) for below in ("", "/x", "/none")),
    ):
        answers = [[path.removeprefix(root) for path in getattr(files, call)(root + below)] for root in roots]
        if below == "/**/*.jsonl":  # on a store, ** needs a slash behind it as anything else
            answers[1] = [path for path in answers[1] if path.count("/") > 1]
        assert answers[0] == answers[1], (call, below)
    for root in roots:
        assert read_bytes(f"{root}/x/y/2.jsonl") == b"x/y/2.jsonl"
        assert files.size(f"{root}/z [1]/3.jsonl") == 13
        assert not files.exists(f"{root}/none")
        with pytest.raises(FileNotFoundError, match="none"):
            files.size(f"{root}/none")


def test_what_another_process_writes_is_seen(place):
    root, write = place
    assert files.names(root) == ["x.jsonl"]
    write(f"{root}/new", b"1")
    assert files.names(root) == ["new", "x.jsonl"]


def test_reads_in_any_order_are_those_of_a_file(place):
    root, write = place
    data = bytes(range(256)) * 8192  # two buffers
    write(f"{root}/a", data)
    expected = io.BytesIO(data)
    with files.open(f"{root}/a") as file:
        for offset, count in ((remote.BUFFER + 5, 10), (0, 3), (len(data) - 1, 10), (100, remote.BUFFER), (7, -1)):
            assert file.seek(offset) == expected.seek(offset)
            assert file.read(count) == expected.read(count)
    write(f"{root}/empty", b"")
    assert read_bytes(f"{root}/empty") == b""


def test_a_file_of_fsspec_is_opened_once_and_read_ahead_by_its_own_file_system(attic, monkeypatch):
    attic.pipe("attic://bucket/a", b"a short line\n" * 250_000)
    opened, open_file = [], type(attic)._open
    monkeypatch.setattr(
        type(attic), "_open", lambda *given, **options: (opened.append(1), open_file(*given, **options))[1]
    )
    with files.open("attic://bucket/a") as file:
        assert sum(1 for _ in file) == 250_000
    assert opened == [1]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.txt", ["a.txt", ".txt"], ["a/b.txt", "a.txt2"]),
        ("a/**.txt", ["a/b.txt", "a/b/c.txt"], ["b/a.txt"]),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("[!ab]c[]x]", ["cc]", "ccx"], ["acx", "cc"]),
        ("a[*]b[", ["a*b["], ["axb[", "a*b"]),
    ],
)
def test_globs(pattern, matching, other):
    for name in sorted(matching + other):
        write_bytes(f"memory://globs/{name}", b"x")
    assert files.match(f"memory://globs/{pattern}") == [f"memory://globs/{name}" for name in sorted(matching)]


@pytest.mark.parametrize("disk", [True, False])
def test_names_and_renewals(tmp_path, disk):
    folder = str(tmp_path) if disk else "memory://bucket/folder"
    write_bytes(f"{folder}/a", b"1")
    write_bytes(f"{folder}/below/b", b"1")
    assert files.names(folder) == ["a"]
    assert files.renew(f"{folder}/a", b"2")
    assert files.read_bytes(f"{folder}/a") == b"2"
    files.delete([f"{folder}/a", f"{folder}/gone"])
    assert not files.renew(f"{folder}/a", b"1")
    assert files.names(folder) == []


def test_what_a_file_system_of_fsspec_refuses_is_one_line(attic):
    attic.pipe("attic://refused/a", b"x")
    with pytest.raises(StoreError, match=r"^attic://refused/a: the attic is locked; finished work is kept: try again$"):
        files.open("attic://refused/a")


@pytest.mark.parametrize("root", ["attic://bucket", "local:///tmp/farspan", "memory://bucket"])
def test_what_only_reads_takes_no_output(root, attic, monkeypatch, capsys):
    monkeypatch.delitem(connect.CLIENTS, "memory")
    scheme = root.partition(":")[0]
    for write in (
        lambda: write_bytes(f"{root}/a", b"x"),
        lambda: files.create_new(f"{root}/a", b"x"),
        lambda: files.renew(f"{root}/a", b"x"),
        lambda: files.delete([f"{root}/a"]),
    ):
        with pytest.raises(FarspanError, match=rf"^{root}/a: {scheme}:// is for reading; write to a folder on disk, "):
            write()


@pytest.mark.parametrize("path", ["x://y", "s4://bucket/a"])
def test_a_scheme_that_nobody_knows_is_refused(path):
    with pytest.raises(FarspanError, match=rf"no file system {path[: path.index(':')]}:// is installed"):
        files.exists(path)


def test_a_library_that_is_missing_is_named():
    error = "loft:// needs the library loft"
    fsspec.register_implementation("loft", "no_such_module.Loft", clobber=True, errtxt=error)
    with pytest.raises(FarspanError, match=r"^loft://a/b: loft:// needs the library loft$"):
        files.exists("loft://a/b")


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

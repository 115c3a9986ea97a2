"""Downloads from a server that cuts connections, forgets ranges and sends wrong bytes."""

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from support.picture_files import write_mnist

from livi import cli
from livi.experiments.datasets import download
from livi.experiments.datasets.download import DownloadError, extract, fetch, md5_of
from livi.experiments.datasets.published import SOURCES, File, Source

CONTENT = np.random.default_rng(0).bytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Gives `content`, at most `most` bytes a connection, from where it is asked if `ranges`; notes the requests."""

    content, most, ranges = CONTENT, None, True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        if self.path == "/missing":
            self.send_error(404)
            return
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if begin >= len(server.content):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(server.content) - begin))
        self.end_headers()
        self.wfile.write(server.content[begin : None if server.most is None else begin + server.most])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(folder, *urls, md5=MD5):
    said = []
    return fetch(folder, File("sets/file.bin", urls, md5), said.append, pause=0.0), said


def test_a_file_arrives_once_and_is_left_alone_afterwards(tmp_path, server):
    path, _ = get(tmp_path, server.url)
    assert path.read_bytes() == CONTENT
    assert [each.name for each in path.parent.iterdir()] == ["file.bin"]
    _, said = get(tmp_path, server.url)
    assert server.asked == [None]
    assert "there already" in said[0]


def test_a_cut_connection_is_gone_on_with(tmp_path, server):
    server.most = 130_000
    path, said = get(tmp_path, server.url)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=130000-", "bytes=260000-"]
    assert sum("going on" in text for text in said) == 2


def test_another_process_goes_on_with_what_had_arrived(tmp_path, server):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/file.bin.part").write_bytes(CONTENT[:1000])
    assert get(tmp_path, server.url)[0].read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


@pytest.mark.parametrize("before", [b"something else", b"?" * len(CONTENT)])
def test_where_what_had_arrived_was_something_else_it_begins_again(tmp_path, server, before):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/file.bin.part").write_bytes(before)
    path, said = get(tmp_path, server.url)
    assert path.read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(before)}-", None]
    assert any("starting again" in text for text in said)


def test_all_that_had_arrived_is_checked_and_used(tmp_path, server):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/file.bin.part").write_bytes(CONTENT)
    assert get(tmp_path, server.url)[0].read_bytes() == CONTENT
    (tmp_path / "sets/file.bin").unlink()
    (tmp_path / "sets/file.bin.part").write_bytes(CONTENT + b"too much")
    assert get(tmp_path, server.url)[0].read_bytes() == CONTENT


def test_a_server_without_ranges_begins_again(tmp_path, server):
    server.ranges = False
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/file.bin.part").write_bytes(b"something else")
    assert get(tmp_path, server.url)[0].read_bytes() == CONTENT


def test_wrong_bytes_never_take_the_file_s_place(tmp_path, server):
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(DownloadError, match=f"expected md5 {MD5}, got .*thrown away"):
        get(tmp_path, server.url)
    assert not list((tmp_path / "sets").iterdir())


def test_a_damaged_file_is_replaced(tmp_path, server):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/file.bin").write_bytes(b"half of it")
    assert get(tmp_path, server.url)[0].read_bytes() == CONTENT


def test_the_next_address_is_tried(tmp_path, server):
    missing = server.url.replace("/file", "/missing")
    assert get(tmp_path, missing, server.url)[0].read_bytes() == CONTENT
    (tmp_path / "sets/file.bin").unlink()
    with pytest.raises(DownloadError, match=r"expected it from 1 addresses, got none; .*404"):
        get(tmp_path, missing)


def test_a_server_that_gives_nothing_is_given_up_and_what_had_arrived_kept(tmp_path, server):
    server.most = 0
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/file.bin.part").write_bytes(CONTENT[:1000])
    with pytest.raises(DownloadError, match="bytes early"):
        get(tmp_path, server.url)
    assert len(server.asked) == download.ATTEMPTS
    assert (tmp_path / "sets/file.bin.part").read_bytes() == CONTENT[:1000]


def test_only_members_that_are_wanted_are_taken_out_and_nothing_leaves_the_folder(tmp_path):
    contents = {"set/a.bin": b"a", "set/readme.html": b"no", "set/../../b.bin": b"b"}
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as file:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        for name, content in contents.items():
            file.writestr(name, content)
    for archive in ("x.tar.gz", "x.zip"):
        home = tmp_path / archive.replace(".", "-")
        home.mkdir()
        assert extract(tmp_path / archive, home, {"set/*.bin": "out"}) == 2
        assert {path.name: path.read_bytes() for path in home.rglob("*.bin")} == {"a.bin": b"a", "b.bin": b"b"}
        assert {path.parent for path in home.rglob("*.bin")} == {home / "out"}
        with pytest.raises(ValueError, match="expected members like other"):
            extract(tmp_path / archive, home, {"other*": "out"})


def test_the_command_gets_a_set_that_can_be_read(tmp_path, monkeypatch, server, capsys):
    """EMNIST as it is published: one archive, of which a kind is taken out."""
    write_mnist(tmp_path / "made")
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as file:
        for path in (tmp_path / "made/emnist-letters").iterdir():
            file.write(path, f"gzip/{path.name}")
    server.content = (tmp_path / "gzip.zip").read_bytes()
    file = File(
        "emnist/gzip.zip", (server.url,), md5_of(tmp_path / "gzip.zip"), SOURCES["emnist-letters"].files[0].taken
    )
    monkeypatch.setitem(SOURCES, "emnist-letters", Source((file,), 1, "made"))
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path / "here"))
    assert cli.main(["data", "get", "emnist-letters"]) == 0
    assert cli.main(["data", "verify", "emnist-letters"]) == 0
    assert "sound, test" in capsys.readouterr().out

"""The access key: callers with it are served, others learn what to do."""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import stat

import pytest
from processes import needs_binary, real_service, write_job

import millrace
from millrace import access
from millrace.access import Access

RANK = {"dp_rank": 0, "dp_size": 1, "timeout": 30.0}
KEY = "0123456789abcdef" * 4


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """A folder of keys of this test's own."""
    folder = tmp_path / "keys"
    monkeypatch.setenv(access.KEY_DIR, str(folder))
    monkeypatch.delenv(access.KEY, raising=False)
    monkeypatch.delenv(access.KEY_FILE, raising=False)
    return folder


def key_of(folder):
    """Returns the one key in a folder."""
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return file.read_text().strip()


@needs_binary
def test_same_user_needs_nothing(tmp_path, keys):
    with real_service(write_job(tmp_path, dp=1)) as address:
        assert stat.S_IMODE(keys.stat().st_mode) == 0o700
        port = address.split(":")[1]
        for name in (address, f"localhost:{port}"):
            with millrace.connect(name, **RANK) as loader:
                assert next(loader)["tokens"].size
        assert millrace.change(address, {"pause": "notes"}) > 0
    assert not list(keys.iterdir())


@needs_binary
def test_a_unix_socket_has_a_key_too(tmp_path, keys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with real_service(write_job(tmp_path, dp=1), "unix:s"):
        for name in ("unix:s", f"unix:{tmp_path}/s"):
            with millrace.connect(name, **RANK) as loader:
                assert next(loader)["tokens"].size


@needs_binary
@pytest.mark.parametrize("name", ["100%41", "a#b?c", "\u00e9 :@[1]"])
def test_a_unix_socket_of_any_name(tmp_path, keys, monkeypatch, name):
    """In a URL, which its address is to gRPC, some of these characters have another meaning."""
    monkeypatch.chdir(tmp_path)
    path = f"{name}/s"
    os.mkdir(name)
    with real_service(write_job(tmp_path, dp=1), f"unix:{path}"):
        for address in (f"unix:{path}", f"unix:{tmp_path}/{path}"):
            with millrace.connect(address, **RANK) as loader:
                assert next(loader)["tokens"].size
        assert millrace.change(f"unix:{path}", {"pause": "notes"}) > 0


@needs_binary
def test_strangers_are_told_at_once(tmp_path, keys, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    with real_service(write_job(tmp_path, dp=1)) as address:
        key = key_of(keys)
        monkeypatch.setenv(access.KEY_DIR, str(tmp_path / "another-user"))
        words = "access key only, and this request has none.*access_key_file.*UNAUTHENTICATED"
        with (
            millrace.connect(address, **RANK) as loader,
            pytest.raises(millrace.UserError, match=words),
        ):
            next(loader)
        with pytest.raises(millrace.UserError, match=words):
            millrace.change(address, {"pause": "notes"})
        file = tmp_path / "job.key"
        file.write_text(key + "\n")
        with millrace.connect(address, access_key_file=str(file), **RANK) as loader:
            assert next(loader)["tokens"].size
            assert key not in repr(vars(loader))
        monkeypatch.setenv(access.KEY_FILE, str(file))
        assert millrace.change(address, {"pause": "notes"}) > 0
        monkeypatch.setenv(access.KEY, KEY)
        with pytest.raises(millrace.UserError, match="another one") as raised:
            millrace.change(address, {"resume": "notes"})
        assert KEY not in str(raised.value)
        monkeypatch.setenv(access.KEY, key)
        assert millrace.change(address, {"resume": "notes"}) > 0
    assert key not in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "No such file.*access-key-file"), ("short", "holds no access key"), ("", "holds no")],
)
def test_a_file_that_holds_no_key(tmp_path, keys, text, words):
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)
    with pytest.raises(millrace.UserError, match=words):
        millrace.change("127.0.0.1:1", {"pause": "web"}, access_key_file=str(file))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES])
def test_a_file_that_cannot_be_read(keys, monkeypatch, named, number):
    keys.mkdir()
    file = keys / access._name("localhost:7070")
    file.write_text(KEY)
    made = Access("127.0.0.1:7070", str(file) if named else None, False)

    def fail(path, mode):
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(access, "open", fail, raising=False)
    kind = millrace.UserError if number == errno.EACCES else millrace.LostError
    with pytest.raises(kind, match=f"reading the access key: .*{os.strerror(number)}: '{file}'"):
        made.metadata()
    monkeypatch.delattr(access, "open")
    header = (("authorization", f"Bearer {KEY}"),)
    assert made.metadata() == header
    monkeypatch.setattr(access, "open", fail, raising=False)
    assert made.metadata() == header  # what was read stays


def test_a_variable_that_holds_no_key(keys, monkeypatch):
    monkeypatch.setenv(access.KEY, "two words")
    with pytest.raises(millrace.UserError, match="MILLRACE_ACCESS_KEY holds no access key") as e:
        Access("127.0.0.1:1", None, False)
    assert "two words" not in str(e.value)


def test_the_key_of_the_next_service(keys):
    found = Access("127.0.0.1:7070", None, False)
    assert found.metadata() == ()
    keys.mkdir()
    file = keys / access._name("localhost:7070")
    for key in (KEY, KEY[::-1]):
        file.write_text(key)
        assert found.metadata() == (("authorization", f"Bearer {key}"),)
    file.unlink()
    assert found.metadata() == (("authorization", f"Bearer {KEY[::-1]}"),)


def test_names_are_those_of_the_service(keys):
    one = access._name("127.0.0.1:7070")
    assert {access._name(f"{host}:7070") for host in ("localhost", "[::1]", "0.0.0.0")} == {one}
    others = ["127.0.0.2:7070", "data7:7070", "[fe80::1]:7070", "127.0.0.1:7071", "unix:/tmp/s"]
    names = {access._name(address) for address in others}
    assert len(names | {one}) == len(others) + 1
    assert all(pathlib.PurePath(name).name == name for name in names)


def test_with_tls_a_key_is_not_looked_for(keys, monkeypatch):
    keys.mkdir()
    (keys / access._name("127.0.0.1:7070")).write_text(KEY)
    assert Access("127.0.0.1:7070", None, tls=True).metadata() == ()
    monkeypatch.setenv(access.KEY, KEY)
    assert Access("127.0.0.1:7070", None, tls=True).metadata() != ()

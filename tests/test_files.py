"""Where files are kept, that nobody sees a part of one, and that nobody else's are loaded."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from companion.files import cache_directory, check_owner, keep, kept, making, write_atomically, write_privately

unix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no such modes")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_cache_is_where_the_environment_says(cache: Path) -> None:
    assert cache_directory() == cache
    assert cache.is_dir()
    assert cache_directory("cubin") == cache / "cubin"
    assert (cache / "cubin").is_dir()


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where a folder should be: nobody can write there, not even root.
    (tmp_path / "file").write_text("")
    for place in ("file", "file/cache"):
        monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / place))
        fallback = cache_directory()
        assert fallback.is_dir()
        assert tmp_path not in fallback.parents


# --- who can write ---


@unix
@pytest.mark.usefixtures("umask")
def test_what_the_cache_holds_is_the_users_alone_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / "above" / "cache"))
    keep(cache_directory("kind"), "key", "name", lambda path: path.write_text("content"))
    write_privately(cache_directory("other") / "name", b"content")
    for path in (tmp_path / "above").rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(tmp_path / "above") == 0o700
    program = keep(cache_directory("kind"), "program", "name", lambda path: path.write_text(""), mode=0o700)
    assert mode(program) == 0o700


@unix
@pytest.mark.parametrize("allowed", [0o777, 0o770, 0o702, 0o1777])
@pytest.mark.parametrize("place", ["", "kind"])
def test_a_folder_that_others_can_write_to_is_refused_and_the_error_says_what_to_do(
    cache: Path, place: str, allowed: int
) -> None:
    folder = cache_directory("kind").parent / place
    folder.chmod(allowed)
    with pytest.raises(PermissionError, match="can be written to by others") as error:
        cache_directory("kind")
    assert f"run `chmod -R go-w {folder}`, or set COMPANION_CACHE" in str(error.value)
    folder.chmod(folder.stat().st_mode & ~0o022)
    cache_directory("kind")


@unix
def test_a_folder_or_file_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = keep(cache_directory("kind"), "key", "name", lambda path: path.write_text("content"))
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    for refused in (cache_directory, lambda: check_owner(file)):
        with pytest.raises(PermissionError, match=f"belongs to user {user}, and you are user {user + 1}: remove it"):
            refused()


@unix
def test_a_folder_that_others_can_read_serves(cache: Path) -> None:
    cache.mkdir(mode=0o755)
    assert cache_directory() == cache


@unix
def test_the_cache_may_be_a_link_to_a_folder_of_ones_own_but_nothing_in_it(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    assert cache_directory() == cache
    (cache / "kind").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="is a link"):
        cache_directory("kind")
    (tmp_path / "elsewhere").chmod(0o777)
    with pytest.raises(PermissionError, match=r"elsewhere can be written to by others"):
        cache_directory()


@unix
def test_what_others_can_write_to_is_not_loaded_from_a_folder_that_was_mended_later(cache: Path) -> None:
    file = keep(cache_directory("kind"), "key", "name", lambda path: path.write_text("content"))
    for path in (file, file.parent):
        before = path.stat().st_mode
        path.chmod(0o777)
        with pytest.raises(PermissionError, match="can be written to by others"):
            kept(cache_directory("kind"), "key", "name")
        path.chmod(before)
    assert kept(cache_directory("kind"), "key", "name") == file


def test_on_windows_no_modes_are_asked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getuid", raising=False)
    cache.mkdir()
    cache.chmod(0o777)
    assert cache_directory() == cache


# --- what is there ---


def test_what_is_kept_is_made_once(cache: Path) -> None:
    made = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("content")
        path.with_suffix(".o").write_text("what the compiler left")

    folder = cache_directory("kind")
    assert kept(folder, "key", "name") is None
    first = keep(folder, "key", "name", make)
    assert keep(folder, "key", "name", make) == kept(folder, "key", "name") == first
    assert len(made) == 1
    assert first.read_text() == "content"
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["name"]


@pytest.mark.parametrize("damage", [b"", b"conten", b"planted", b"content and more"])
def test_what_is_not_what_was_written_is_made_anew(cache: Path, damage: bytes) -> None:
    folder = cache_directory("kind")
    file = keep(folder, "key", "name", lambda path: path.write_text("content"))
    file.write_bytes(damage)
    assert kept(folder, "key", "name") is None
    assert keep(folder, "key", "name", lambda path: path.write_text("content")).read_text() == "content"


def test_what_lies_there_without_its_hash_is_not_loaded(cache: Path) -> None:
    folder = cache_directory("kind")
    for name in ("key", "key-name", "key-0123"):
        (folder / name).mkdir()
        (folder / name / "name").write_text("planted")
    assert kept(folder, "key", "name") is None
    assert kept(folder, "key-0123", "name") is None


def test_keys_that_begin_alike_do_not_disturb_each_other(cache: Path) -> None:
    folder = cache_directory("kind")
    for key in ("a", "a-b"):
        keep(folder, key, "name", lambda path, key=key: path.write_text(key))  # type: ignore[misc]
    assert [kept(folder, key, "name").read_text() for key in ("a", "a-b")] == ["a", "a-b"]  # type: ignore[union-attr]


@pytest.mark.parametrize("content", ["content", "as good"])
def test_of_two_that_make_the_same_at_the_same_time_one_stays_and_both_have_it(cache: Path, content: str) -> None:
    folder = cache_directory("kind")

    def make(path: Path) -> None:
        keep(folder, "key", "name", lambda path: path.write_text(content))  # in the midst of it, another is faster
        path.write_text("content")

    assert keep(folder, "key", "name", make).read_text() == content
    assert len(list(folder.iterdir())) == 1


# --- writing ---


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "name"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"second"
    assert [file.name for file in path.parent.iterdir()] == ["name"]


def test_a_full_disk_leaves_what_was_there_and_the_error_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "name"
    write_atomically(path, b"first")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "the unfinished one")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_atomically(path, b"second")
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_an_error_leaves_unfinished_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "name"

    def fail() -> None:
        with making(path) as unfinished:
            unfinished.write_text("half")
            raise RuntimeError("half of it is written")

    with pytest.raises(RuntimeError, match="half"):
        fail()
    assert not list(tmp_path.iterdir())


def test_while_a_file_is_made_the_old_one_is_there(tmp_path: Path) -> None:
    path = tmp_path / "name"
    path.write_text("old")
    with making(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"

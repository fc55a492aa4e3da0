"""Where files are kept, and that nobody sees a part of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from companion.files import cache_directory, making, write_atomically


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_where_the_environment_says(cache: Path) -> None:
    assert cache_directory() == cache
    assert cache.is_dir()


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where a folder should be: nobody can write there, not even root.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / "file" / "cache"))
    fallback = cache_directory()
    assert fallback.is_dir()
    assert tmp_path not in fallback.parents


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "name"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"second"
    assert [file.name for file in path.parent.iterdir()] == ["name"]


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

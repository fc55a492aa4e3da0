"""Sources become cubins without a GPU, once per source, compiler and architecture."""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import pytest
import torch

from companion.cuda import build

HERE = Path(__file__).parent
ARCHITECTURES = [75, 80, 90, 100, 120]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of scale.cu and its header that a test may change."""
    for name in ("scale.cu", "scale.cuh"):
        shutil.copy(HERE / name, tmp_path)
    return tmp_path / "scale.cu"


def built_by_nvrtc() -> bool:
    try:
        build.compiler_version()
    except build.CompileError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(
    not built_by_nvrtc(), reason="NVRTC is not installed; it comes with torch's CUDA wheels"
)


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_cubin_is_made_without_a_gpu(source: Path, cache: Path, arch: int) -> None:
    path = build.cubin(source, arch)
    assert path.read_bytes().startswith(b"\x7fELF")
    assert cache in path.parents
    assert f"sm{arch}" in path.parent.name


@needs_nvrtc
def test_a_source_is_compiled_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build.cubin(source, 90)
    monkeypatch.setattr(build, "compile_to_cubin", lambda *_: pytest.fail("compiled again"))
    assert build.cubin(source, 90) == first


@needs_nvrtc
def test_who_begins_meanwhile_waits_and_finds_it(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def slowly(text: str, source: Path, arch: int) -> bytes:
        compiled.append(arch)
        time.sleep(0.5)
        return f"for {arch}".encode()

    monkeypatch.setattr(build, "compile_to_cubin", slowly)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda arch: build.cubin(source, arch), (90, 90, 80)))
    assert sorted(compiled) == [80, 90]
    assert found[0] == found[1] != found[2]


@needs_nvrtc
def test_where_nothing_locks_it_is_compiled_all_the_same(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("no locks on this disk")

    monkeypatch.setattr(filelock.FileLock, "acquire", refused)
    assert build.cubin(source, 90).read_bytes().startswith(b"\x7fELF")


@needs_nvrtc
def test_what_was_planted_in_the_place_of_a_cubin_is_not_given_out(source: Path) -> None:
    path = build.cubin(source, 90)
    path.write_bytes(b"planted")
    assert build.cubin(source, 90).read_bytes().startswith(b"\x7fELF")


@needs_nvrtc
def test_a_cache_that_others_can_write_to_is_refused(source: Path, cache: Path) -> None:
    path = build.cubin(source, 90)
    for folder in (path.parent, cache / "cubin", cache):
        folder.chmod(0o777)
        with pytest.raises(PermissionError, match=f"{folder.name} can be written to by others"):
            build.cubin(source, 90)
        folder.chmod(0o700)


@needs_nvrtc
@pytest.mark.parametrize("changed", ["scale.cu", "scale.cuh"])
def test_a_changed_source_or_header_is_compiled_anew(source: Path, changed: str) -> None:
    first = build.cubin(source, 90)
    file = source.with_name(changed)
    file.write_text(file.read_text() + "// changed\n")
    assert build.cubin(source, 90) != first


@needs_nvrtc
def test_a_header_of_that_name_in_the_working_directory_is_not_taken(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "scale.cuh").write_text("#error another header\n")
    monkeypatch.chdir(elsewhere)
    assert build.cubin(source, 90).exists()


@needs_nvrtc
def test_another_architecture_or_compiler_has_another_cubin(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build.cubin(source, 90)
    assert build.cubin(source, 80) != first
    monkeypatch.setattr(build, "compiler_version", lambda: (99, 0))
    assert build.cubin(source, 90) != first


@needs_nvrtc
def test_the_log_of_the_compiler_is_the_message(source: Path) -> None:
    source.write_text(source.read_text().replace("factor", "fctor"))
    with pytest.raises(build.CompileError, match=r"(?s)scale\.cu for sm_90: .*fctor") as caught:
        build.cubin(source, 90)
    assert not isinstance(caught.value, build.ToolError)


@needs_nvrtc
def test_missing_headers_are_no_fault_of_the_source(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_cuda_headers", build._cuda_headers.__wrapped__)
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_header_directory", lambda _: None)
    with pytest.raises(build.ToolError, match="CUDA's headers were not found"):
        build.cubin(source, 90)


@needs_nvrtc
def test_an_unknown_architecture_is_named(source: Path) -> None:
    with pytest.raises(build.CompileError, match=r"scale\.cu for sm_12: .*architecture"):
        build.cubin(source, 12)


@needs_nvrtc
def test_what_failed_leaves_nothing_in_the_cache(source: Path, cache: Path) -> None:
    source.write_text("nonsense")
    with pytest.raises(build.CompileError):
        build.cubin(source, 90)
    assert not list(cache.rglob("*.cubin"))


def test_without_nvrtc_the_error_says_what_to_install(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build._nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    for cuda, remedy in (
        ("13.2", r'pip install "rethinking-the-neuron\[gpu\]"'),
        (None, "kernels need a torch for CUDA"),
    ):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        with pytest.raises(build.ToolError, match=rf"NVRTC could not be loaded \(.*\); {remedy}"):
            build.cubin(source, 90)
    monkeypatch.undo()
    build._nvrtc.cache_clear()


@needs_nvrtc
def test_a_compiler_that_is_newer_than_the_gpus_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    major, minor = build.compiler_version()
    monkeypatch.setattr(build, "_nvrtc", build._nvrtc.__wrapped__)  # without its memory
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", f"{major - 1}.8")
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: 1000 * major, raising=False)
    assert build.compiler_version() == (major, minor)
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: 1000 * (major - 1) + 90, raising=False)
    known = f"the driver knows CUDA {major - 1}.9, torch is for CUDA {major - 1}.8"
    with pytest.raises(build.ToolError, match=rf"NVRTC is of CUDA {major}\.{minor}, {known}"):
        build.compiler_version()

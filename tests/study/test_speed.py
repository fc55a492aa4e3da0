"""The words for speeds come from the numbers of a benchmark, and from a quiet machine's alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from companion.study import results, speed

SIZES = ("16", "1048576")
#: Milliseconds of both passes, by dtype, size and competitor.
TIMES = {
    ("float32", "16"): {"companion": 2.0, "published": 4.0, "companion, compiled": 1.2, "published, compiled": 1.0},
    ("float32", "1048576"): {
        "companion": 30.0,
        "published": 20.0,
        "companion, compiled": 9.0,
        "published, compiled": 10.0,
    },
    ("bfloat16", "16"): {"companion": 4.0, "published": 4.0, "companion, compiled": 2.0, "published, compiled": 2.0},
    ("bfloat16", "1048576"): {
        "companion": 6.0,
        "published": 5.0,
        "companion, compiled": 3.0,
        "published, compiled": 2.0,
    },
}


def benchmark(**changed: Any) -> dict[str, Any]:
    rows = [
        {"dtype": dtype, "size": size, "elements": int(size), "competitor": competitor, "forward_backward_ms": time}
        for (dtype, size), times in TIMES.items()
        for competitor, time in times.items()
    ]
    return {
        "experiment": "bench-toy",
        "preset": "cpu",
        "finished": True,
        "description": "",
        "settings": {"reference_ms": [{"least": 1.0, "median": 1.1}]},
        "seeds": [],
        "rows": rows,
        **{key: [] for key in ("tuning", "chosen", "smoke")},
        "provenance": {"threads": 2, "hardware": {"cpu": "a processor", "gpu": None}},
        **changed,
    }


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> speed.Speeds:
    monkeypatch.setattr(results, "load", lambda name, preset: benchmark())
    return speed.load("toy")


def test_the_time_is_beside_the_compiled_published_formula(toy: speed.Speeds) -> None:
    assert toy.beside(["16"]) == (
        "1.20 times as long as the published formula compiled, and eager 0.50 times as long as it eager (fp32; bf16 "
        "1.00 and 1.00)"
    )
    several = "slower in 2 of 4 cases by over 5 %, faster in 1"
    assert toy.compiled() == (
        f"0.90 to 1.20 times as long as the published formula compiled (fp32; bf16 1.00 to 1.50; {several})"
    )
    assert toy.beside().endswith(f"(fp32; bf16 1.00 to 1.50 and 1.00 to 1.20; compiled {several})")
    assert toy.machine == "2 threads of an a processor"
    assert (toy.sizes, toy.competitors) == ([*SIZES], [*TIMES["float32", "16"]])


def test_ratios_come_by_dtype_and_then_by_size(toy: speed.Speeds) -> None:
    assert toy.ratios("companion, compiled") == [1.2, 0.9, 1.0, 1.5]
    assert toy.ratios("companion, compiled", "companion", ["float32"], ["1048576"]) == [0.3]


@pytest.mark.parametrize("by", [0.5, 0.94, 0.97, 1.0, 1.03, 1.06, 2.0])
def test_other_numbers_make_another_word(by: float) -> None:
    word = "faster" if by < 0.95 else "slower" if by > 1.05 else "as fast, within 5 %"
    assert speed.verdict([by, by]) == word
    changed = speed.verdict([by, 3.0])
    assert changed == (
        "slower"
        if word == "slower"
        else f"slower in 1 of 2 cases by over 5 %, faster in {'1' if by < 0.95 else 'none'}"
    )


def test_a_verdict_needs_a_ratio() -> None:
    with pytest.raises(ValueError, match="ratios: got none"):
        speed.verdict([])


@pytest.mark.parametrize("references", [[], [{"least": 1.0, "median": 1.3}]])
def test_times_of_a_disturbed_machine_are_refused(
    references: list[dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "load", lambda name, preset: benchmark(settings={"reference_ms": references}))
    with pytest.raises(ValueError, match=r"bench-toy-cpu is not a quiet machine's: .*measure again"):
        speed.load("toy")


def test_a_promoted_benchmark_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    made = benchmark()
    made["provenance"] |= {"versions": {}, "git": None, "date": "2026-01-01", "duration_seconds": 1.0}
    (tmp_path / "results" / "bench-toy-cpu.json").write_text(json.dumps(made), encoding="utf-8")
    monkeypatch.setattr(results, "data_path", lambda: tmp_path)
    monkeypatch.setattr(results, "check", lambda *_: None)  # its form is asked in test_bench
    assert speed.load("toy").ms("companion", "16") == 2.0

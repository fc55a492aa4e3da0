"""`make gpu` goes to its end whatever fails, and what it writes names no person, host or folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

import companion
from companion.operators import operators
from companion.proofs import verdicts
from companion.study.experiments import get, provenance
from tests import gpu, lanes
from tests.lanes import Step

RUN = """import pathlib, sys; pathlib.Path(sys.argv[1], "bench-new.json").write_text('{"ms": 1}')"""


def test_whatever_fails_the_rest_is_run_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "bench-old.json").write_text("{}")
    monkeypatch.setattr(gpu, "machine", lambda: provenance.environment("cpu") | {"driver": "none"})
    monkeypatch.setattr(lanes, "BUILD", tmp_path)
    broken = (sys.executable, "-c", f"raise SystemExit({str(tmp_path / 'secret' / 'file')!r})")
    given = [Step("broken", broken, {}), Step("measures", (sys.executable, "-c", RUN, str(runs)), {})]
    monkeypatch.setattr(gpu, "steps", lambda: given)
    before = (runs / "bench-old.json").stat().st_mtime - 60
    os.utime(runs / "bench-old.json", (before, before))
    assert gpu.main(runs) == 1
    text = (tmp_path / "gpu.json").read_text()
    report = json.loads(text)
    assert [(each["step"], each["status"]) for each in report["steps"]] == [("broken", 1), ("measures", 0)]
    assert report["steps"][0]["why"] == ["file"]
    assert report["results"] == {"bench-new": {"ms": 1}}
    assert str(tmp_path) not in text


def test_its_steps_are_commands_that_there_are() -> None:
    names = [step.name for step in gpu.steps()]
    assert [name for name in names if name != "sanitizer"] == ["doctor", "proof", "tests", "benchmarks", "experiment"]
    assert (lanes.ROOT / gpu.SANITIZER).is_file()
    assert "full" in get("dnrt-cifar10").presets


@pytest.mark.parametrize("holds", [True, False])
def test_the_proof_names_every_operator_and_fails_where_one_does_not_hold(
    holds: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(companion, "warmup", lambda: None)
    monkeypatch.setattr(verdicts, "place_of", str)
    monkeypatch.setattr(verdicts, "known", lambda operator, place: verdicts.Verdict(holds, "it is wrong."))
    with pytest.raises(SystemExit) as ended:
        exec(gpu.PROOF, {})
    assert ended.value.code is not holds
    lines = [f"{operator.name}: {'proved' if holds else 'it is wrong.'} (0 s)" for operator in operators()]
    assert lines
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(("driven", "status"), [(False, 0), (True, 1)])
def test_a_gpu_that_pytorch_cannot_use_is_a_failure_that_says_why(
    driven: bool, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def init() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old")

    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(gpu, "driven", lambda: driven)
    assert gpu.without() == status
    said = capsys.readouterr().out
    assert "nothing was run" in said
    lines = (lanes.ROOT / "environment.yml").read_text()
    for part in ("driver on your system is too old", "torch<2.11", "gpu-cuda12", "580"):
        assert (part in said) is driven
        assert part in lines or part.startswith("driver")


@pytest.mark.parametrize(("program", "driven"), [("true", True), ("false", False), (None, False)])
def test_a_driver_is_there_if_nvidia_smi_runs(
    program: str | None, driven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: program)
    assert gpu.driven() is driven

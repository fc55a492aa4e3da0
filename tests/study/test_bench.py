"""The benchmark measures what it says, on shapes small enough for a test."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import companion
from companion.study import bench, results


@pytest.fixture(autouse=True)
def chosen() -> Iterator[None]:
    """A benchmark chooses who computes for its process; here no longer than a test."""
    with companion.backend("auto"):
        yield


@pytest.fixture(params=bench.subjects())
def what(request: pytest.FixtureRequest) -> bench.Subject:
    """A room's subject without its compiled competitors."""
    subject = bench.subjects()[request.param]
    eager = tuple(c for c in subject.competitors if not c.compiled)
    return dataclasses.replace(subject, competitors=eager, shapes=lambda device: [subject.tiny])


def test_the_packages_function_is_the_published_expression(what: bench.Subject) -> None:
    functions = {c.name: c.function for c in what.competitors}
    inputs = bench.Inputs.draw(what, what.tiny, "float32", "cpu")
    ours, published = (inputs.forward(functions[name]) for name in ("companion", "published"))
    torch.testing.assert_close(ours, published, rtol=1e-4, atol=1e-5)
    assert what.competitors[0].name == "companion"


def test_every_argument_gets_a_gradient(what: bench.Subject) -> None:
    inputs = bench.Inputs.draw(what, what.tiny, "float32", "cpu")
    inputs.forward_backward(what.competitors[0].function)
    assert all(argument.grad is not None for argument in inputs.arguments)


def test_a_row_per_competitor_and_ratios_to_the_published(what: bench.Subject) -> None:
    rows = bench.measure(what, what.tiny, "float32", "cpu", repeats=2)
    assert [row["competitor"] for row in rows] == [c.name for c in what.competitors]
    by_name = {row["competitor"]: row for row in rows}
    assert by_name["published"]["forward_ratio"] == by_name["published"]["forward_backward_ratio"] == 1
    assert all(row["forward_ms"] > 0 and row["elements"] == math.prod(what.tiny) for row in rows)
    assert {row["size"] for row in rows} == {" × ".join(map(str, what.tiny))}


def test_the_run_writes_a_result_that_fits_the_schema(
    what: bench.Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "runs_path", lambda: tmp_path)
    monkeypatch.setattr(bench, "subjects", lambda: {what.name: what})
    monkeypatch.setattr(bench, "peak_mebibytes", lambda *_: 1.0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main([what.name, "--repeats", "1"]) == 0
    (path,) = tmp_path.iterdir()
    assert path.name == f"bench-{what.name}-cpu.json"
    result = json.loads(path.read_text())
    results.check(result, path.name)
    assert result["rows"][0]["peak_mib"] == 1.0


def test_memory_is_that_of_the_pass() -> None:
    # z's gradient alone is 16 MiB
    assert 16 <= bench.peak_mebibytes("apa", "published", (2**22,), "float32", "cpu") < 1000


def test_a_process_that_dies_measures_no_memory_and_had_all_that_this_one_does_not_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    assert math.isnan(bench.peak_mebibytes("apa", "nobody", (2,), "float32", "cuda"))
    assert emptied == [True]


def test_with_a_value_per_channel_aglu_holds_three_times_its_input_at_most() -> None:
    # the result, the gradient and some chunks; the published expression holds seven times its input
    shape = (64, 64, 32, 32)
    mebibytes = math.prod(shape) * 4 / 2**20
    assert bench.peak_mebibytes("apa-channels", "companion", shape, "float32", "cpu") <= 3 * mebibytes


def test_without_a_name_the_names_are_listed_and_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_measured", None)
    assert bench.main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*bench.subjects()]


def test_all_means_all_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured = []

    def note(what: bench.Subject, *_: object) -> dict[str, object]:
        measured.append(what.name)
        return {"preset": "cpu", "rows": []}

    monkeypatch.setattr(bench, "_measured", note)
    monkeypatch.setattr(bench, "runs_path", lambda: tmp_path)
    assert bench.main(["all"]) == 0
    assert measured == [*bench.subjects()]


def test_one_dtype_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def note(what: bench.Subject, device: str, dtypes: list[str], *_: object) -> dict[str, object]:
        asked.append(dtypes)
        return {"preset": "cpu", "rows": []}

    monkeypatch.setattr(bench, "_measured", note)
    monkeypatch.setattr(bench, "runs_path", lambda: tmp_path)
    name = next(iter(bench.subjects()))
    assert bench.main([name]) == bench.main([name, "--dtype", "float32"]) == 0
    assert asked == [["float32", "bfloat16"], ["float32"]]


def test_bfloat16_is_left_out_on_a_gpu_that_only_emulates_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def note(what: bench.Subject, device: str, dtypes: list[str], *_: object) -> dict[str, object]:
        asked.append((device, dtypes))
        return {"preset": "gpu", "rows": []}

    monkeypatch.setattr(bench, "_measured", note)
    monkeypatch.setattr(bench, "runs_path", lambda: tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert bench.main(["apa"]) == 0
    assert asked == [("cuda", ["float32"])]
    with pytest.raises(SystemExit):
        bench.main(["apa", "--dtype", "bfloat16"])


def test_every_counted_call_follows_one_of_its_own_and_the_order_changes() -> None:
    called: list[str] = []

    def recorded(name: str) -> bench.Competitor:
        def function(z: torch.Tensor) -> torch.Tensor:
            called.append(name)
            return z.exp()

        return bench.Competitor(name, function)

    names = ("companion", "published", "another")
    what = bench.Subject("apa", "", tuple(map(recorded, names)), lambda device: [(3,)])
    rounds = 5
    bench.measure(what, (3,), "float32", "cpu", repeats=rounds - 3)
    pairs = list(zip(called[::2], called[1::2], strict=True))
    assert all(first == second for first, second in pairs)
    each = 2 * len(names)  # forward, and forward with backward
    orders = [tuple(first for first, _ in pairs[k * each : (k + 1) * each]) for k in range(rounds)]
    assert all(sorted(order) == sorted(2 * names) for order in orders)
    assert len(pairs) == rounds * each
    assert len(set(orders)) > 1


@pytest.mark.parametrize("first", [(1.0, 1.5), (1.5, 1.0)], ids=["after it", "before it"])
def test_a_shape_beside_which_the_reference_was_slow_is_measured_again(
    first: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    references = iter([*first, 1.0, 1.0])  # before; after the first shape, and again; after the second
    measured: list[tuple[int, ...]] = []

    def note(what: bench.Subject, shape: tuple[int, ...], *_: object) -> list[dict[str, object]]:
        measured.append(shape)
        return [{"competitor": "companion"}]

    monkeypatch.setattr(bench, "measure", note)
    monkeypatch.setattr(bench, "reference", lambda device: dict.fromkeys(("least", "median"), next(references)))
    monkeypatch.setattr(bench, "peak_mebibytes", lambda *_: 1.0)
    what = dataclasses.replace(bench.subjects()["apa"], shapes=lambda device: [(2,), (3,)])
    settings = bench._measured(what, "cpu", ["float32"], 10, 1)["settings"]
    assert measured == [(2,), (2,), (3,)]
    assert [each["median"] for each in settings["reference_ms"]] == [1.0, 1.0, 1.0]


def test_memory_is_measured_at_one_of_the_largest_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "measure", lambda what, shape, *_: [{"competitor": "companion", "shape": shape}])
    monkeypatch.setattr(bench, "reference", lambda device: {"least": 1.0, "median": 1.0})
    monkeypatch.setattr(bench, "peak_mebibytes", lambda *_: 1.0)
    what = dataclasses.replace(bench.subjects()["apa"], shapes=lambda device: [(2, 2), (2, 3), (3, 2)])
    rows = bench._measured(what, "cpu", ["float32", "bfloat16"], 10, 1)["rows"]
    assert [row["shape"] for row in rows if "peak_mib" in row] == [(2, 3), (2, 3)]


def test_what_the_gpu_has_no_room_for_has_no_number_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(z: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            raise torch.cuda.OutOfMemoryError("full")
        return z.exp()

    competitors = (bench.Competitor("companion", torch.exp), bench.Competitor("published", full))
    what = bench.Subject("apa", "of one shape", competitors, lambda device: [(3,)])
    monkeypatch.setattr(bench, "runs_path", lambda: tmp_path)
    monkeypatch.setattr(bench, "subjects", lambda: {what.name: what})
    monkeypatch.setattr(bench, "peak_mebibytes", lambda *_: math.nan)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main(["all", "--repeats", "1", "--dtype", "float32"]) == 0
    result = json.loads((tmp_path / "bench-apa-cpu.json").read_text())
    results.check(result, "bench-apa-cpu")
    ours, published = result["rows"]
    assert ours["forward_ms"] * ours["forward_ratio"] * ours["forward_backward_ms"] * published["forward_ms"] > 0
    absent = [ours["forward_backward_ratio"], *(published[f"forward_backward_{key}"] for key in ("ms", "ratio"))]
    assert [*absent, ours["peak_mib"]] == [None] * 4


def test_a_subject_that_fails_is_named_and_does_not_end_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = bench.subjects()

    def measured(what: bench.Subject, *_: object) -> dict[str, object]:
        if what.name == first:
            raise RuntimeError("why")
        return {"preset": "cpu", "rows": []}

    monkeypatch.setattr(bench, "_measured", measured)
    monkeypatch.setattr(bench, "runs_path", lambda: tmp_path)
    assert bench.main(["all"]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {f"bench-{name}-cpu.json" for name in rest}
    said = capsys.readouterr().err
    assert "RuntimeError: why" in said
    assert f"not measured: {first};" in said


def test_the_reference_takes_some_time() -> None:
    took = bench.reference("cpu")
    assert 0 < took["least"] <= took["median"]


def test_the_memory_of_a_compiled_function_has_no_compilation_in_it() -> None:
    # the pass moves five tensors of 36 KiB at most; a compilation takes 30 MiB and more
    assert bench.peak_mebibytes("apa", "companion, compiled", (96, 96), "float32", "cpu") < 4

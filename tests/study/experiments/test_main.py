import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from companion.study.experiments import get, run
from companion.study.experiments.__main__ import main

COMMAND = [sys.executable, "-m", "companion.study.experiments"]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_RUNS", str(tmp_path))
    monkeypatch.setenv("CI", "1")
    return tmp_path


def test_list_names_every_experiment_and_what_is_finished(runs, capsys):
    assert main(["list"]) == 0
    before = capsys.readouterr().out
    assert "apa-digits" in before
    run(get("apa-digits"), "smoke", seeds=1)
    assert main(["list"]) == 0
    assert "smoke: finished on" in capsys.readouterr().out


def test_list_says_which_results_are_outdated_when_it_is_asked_or_when_they_say_so(runs, capsys, monkeypatch):
    digits = get("apa-digits")
    smoke = digits.presets["smoke"]
    small = dataclasses.replace(digits, presets={"smoke": smoke, "laptop": {**smoke, "activations": ["relu"]}})
    monkeypatch.setattr("companion.study.experiments.__main__.experiments", lambda: [small])
    path = run(small, "laptop", seeds=1)
    result = json.loads(path.read_text())

    def listed(*arguments, **changes):
        path.write_text(json.dumps({**result, **changes}))
        assert main(["list", *arguments]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    other = [{**row, "test_accuracy": 0.9} for row in result["smoke"]]
    assert listed("--check").endswith("with 1 seeds (runs)")
    assert "(runs, outdated: test_accuracy of row 0 was 0.9 and is" in listed("--check", smoke=other)
    assert listed(smoke=other).endswith("(runs)")
    assert listed(outdated="Other batches.").endswith("(runs, outdated: Other batches.)")


def test_run_ends_with_the_table_and_table_shows_it_again(runs, capsys):
    assert main(["run", "apa-digits", "--preset", "smoke", "--seeds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "| aglu | 100 |" in shown
    assert "2 seeds, from runs" in shown
    assert main(["table", "apa-digits", "--preset", "smoke"]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "apa-none"], "the experiments are"),
        (["run", "apa-digits", "--preset", "huge"], "apa-digits has smoke, laptop, full"),
        (["table", "apa-digits", "--preset", "smoke"], "no finished result"),
    ],
)
def test_mistakes_give_a_sentence_and_status_2(runs, capsys, arguments, message):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_one_bad_file_does_not_stop_the_list(runs, capsys):
    (runs / "apa-digits-smoke.json").write_text('{"experiment": "apa-di')
    (runs / "dac-toy-smoke.json").write_text('{"experiment": "apa-digits"}')
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert f"smoke: NOT READABLE: {runs / 'apa-digits-smoke.json'} is damaged" in shown
    assert f"smoke: NOT READABLE: {runs / 'dac-toy-smoke.json'} is not a finished result" in shown
    assert "layeract-mnist" in shown


def test_a_smoke_preset_that_does_not_run_does_not_stop_the_list(runs, capsys, monkeypatch):
    def refuse(experiment):
        raise BlockingIOError("another run works there")

    monkeypatch.setattr("companion.study.experiments.runner.smoke", refuse)
    assert main(["list", "--check"]) == 0
    shown = capsys.readouterr().out
    assert "outdated: perhaps; its smoke preset does not run: another run works there" in shown
    assert "layeract-mnist" in shown


def test_a_table_is_refused_for_another_experiments_or_other_codes_result(runs, capsys):
    path = run(get("apa-digits"), "smoke", seeds=1)
    result = json.loads(path.read_text())

    def refused(name, **changes):
        (runs / f"{name}-smoke.json").write_text(json.dumps({**result, **changes}))
        assert main(["table", name, "--preset", "smoke"]) == 2
        return capsys.readouterr().err

    assert "dac-toy-smoke.json holds apa-digits-smoke" in refused("dac-toy")
    assert "are not this experiment's" in refused("dac-toy", experiment="dac-toy")
    renamed = [{key: value for key, value in row.items() if key != "test_accuracy"} for row in result["rows"]]
    assert "row 0 of the result has no test_accuracy" in refused("apa-digits", rows=renamed)
    words = [{**row, "test_accuracy": "good"} for row in result["rows"]]
    assert "row 0 of the result has something else than a number for test_accuracy" in refused("apa-digits", rows=words)


def test_a_full_disk_and_an_interrupt_give_a_sentence(runs, capsys, monkeypatch):
    for error, status, words in (
        (OSError(errno.ENOSPC, "No space left on device", "runs/x.json"), 2, "No space left on device: 'runs/x.json'"),
        (KeyboardInterrupt(), 130, "what is finished is kept, and run --resume goes on"),
    ):

        def stop(*_, error=error, **__):
            raise error

        monkeypatch.setattr("companion.study.experiments.runner.run", stop)
        assert main(["run", "apa-digits", "--preset", "smoke"]) == status
        assert words in capsys.readouterr().err


def test_without_the_extra_the_list_is_there_and_the_rest_names_it(runs):
    code = (
        "import sys\n"
        "for name in ('numpy', 'scipy', 'sklearn', 'tqdm', 'fastjsonschema', 'torchvision'): sys.modules[name] = None\n"
        "from companion.study.experiments.__main__ import main\n"
        "sys.exit(main(['list']) or main(['run', 'apa-digits']) + main(['table', 'apa-digits']) != 4)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "finished on" in result.stdout
    run_it, table_it = (line for line in result.stderr.splitlines() if line.startswith("companion experiments: "))
    assert "fastjsonschema, numpy, scipy, sklearn, tqdm are missing: pip install " in run_it
    assert 'scipy is missing: pip install "rethinking-the-neuron[experiments]"' in table_it
    assert not list(runs.iterdir())


def children(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)
    return value


@pytest.mark.slow
def test_a_killed_run_resumes_with_nothing_lost_or_counted_twice(runs):
    seeds = 3
    process = subprocess.Popen(
        [*COMMAND, "run", "apa-digits", "--preset", "smoke", "--seeds", str(seeds), "--jobs", "2"],
        cwd=ROOT,
        env={**os.environ, "COMPANION_RUNS": str(runs)},
        stdout=subprocess.DEVNULL,
    )
    folder = runs / "apa-digits-smoke"
    # Killed in the midst of the evaluation: the 8 tuning jobs and some of the 12 others are done.
    wait_until(lambda: len(list(folder.glob("*.json"))) > 10, seconds=300)
    workers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(map(alive, workers)), seconds=20)
    assert not (runs / "apa-digits-smoke.json").exists()
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 10 < len(kept) < 20

    resumed = json.loads(run(get("apa-digits"), "smoke", seeds=seeds, resume=True).read_text())
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())
    assert len(list(folder.glob("*.json"))) == 20

    # The uninterrupted run, in one process: the same numbers, each once.
    whole = json.loads(run(get("apa-digits"), "smoke", seeds=seeds).read_text())
    assert len(whole["rows"]) == 4 * seeds
    assert resumed["rows"] == whole["rows"]
    assert resumed["tuning"] == whole["tuning"]

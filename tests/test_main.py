"""One command line for what people do without writing code."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import companion
from companion.__main__ import COMMANDS, _model, main


def own() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


class Deciding(nn.Module):
    """Asks its input how large it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = own()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x if x.shape[-1] > 3 else x.repeat(1, 2))
        return result


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_a_network_is_counted_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "count", "squeezenet1_1", "--input", "3,64,64", "--by-operator")
    assert lines[0].startswith("aten.convolution ")
    assert any("DACConv2d" in line for line in said(capsys, "count", "squeezenet1_1", "--dac"))
    table = said(capsys, "count", f"{__name__}:own", "--input", "4", "--replace", "relu=aglu")
    assert "Linear → DACLinear: layers.2" in said(capsys, "count", f"{__name__}:Deciding", "--input", "4", "--dac")
    assert table[:2] == ["ReLU → AGLU(num_parameters=1, dim=1, init='near_one'): '1'", "parameters: 23 → 25"]


def test_nothing_is_downloaded_for_parts_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*args: object, **kwargs: object) -> None:
        raise AssertionError("a download")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    assert isinstance(_model("lraspp_mobilenet_v3_large"), nn.Module)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count", "resnet19"), "model: got 'resnet19', allowed is the name of a network of torchvision or timm"),
        (("count", "squeezenet1_1", "--replace", "gelu=aglu"), "model: SqueezeNet holds no GELU to replace"),
        (
            ("count", "no_such_package:make"),
            "model: got 'no_such_package:make' (No module named 'no_such_package'), allow",
        ),
        (
            ("count", f"{__name__}:nothing"),
            "(module 'tests.test_main' has no attribute 'nothing'), allowed is package.",
        ),
        (("count", "squeezenet1_1", "--input", "x"), "invalid literal for int"),
        (("count", "squeezenet1_1", "--replace", "relu"), "--replace: got 'relu', allowed is OLD=NEW"),
        (("bench", "nothing"), "name: got nothing, allowed are"),
        (("guess",), "invalid choice: 'guess'"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_the_others_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "doctor")[0] == "Installed"
    assert any(line.startswith("apa-digits: ") for line in said(capsys, "experiments", "list"))


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_all_commands(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "companion", *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(f"\n{command}" in shown.stdout for command in COMMANDS)


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"companion {companion.__version__}\n"

"""The device is there before anything is computed."""

from __future__ import annotations

import pytest

from tests.second_device import device

device.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make zoo` asks for."""
    parser.addoption("--every-case", action="store_true", help="every case and every network of the full presets")


@pytest.fixture
def every_case(request: pytest.FixtureRequest) -> bool:
    """Whether nothing is left out."""
    chosen: bool = request.config.getoption("every_case")
    return chosen

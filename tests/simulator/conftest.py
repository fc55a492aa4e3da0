"""What all tests of the simulator need: a machine that can run it, and a cache of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from companion import simulator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = simulator.why_not()
    if reason is None:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache that is empty at the start: what the tests run is what they compiled."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPANION_CACHE", str(folder))
        patch.delenv("COMPANION_SIMULATOR_ORDER", raising=False)
        patch.delenv("COMPANION_SIMULATOR_THREADS", raising=False)
        yield folder

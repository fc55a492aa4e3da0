"""What is asked of packages that not everybody has: a sentence instead of an error from deep inside."""

from __future__ import annotations

import importlib.util

__all__ = ["need"]


def need(extra: str, *modules: str) -> None:
    """Raise ModuleNotFoundError that says what to install unless all modules can be found. Nothing is imported.

    Parameters
    ----------
    extra : str
        Of this package: what brings them.
    *modules : str
        Names as they are imported.

    Examples
    --------
    >>> need("experiments", "torch")
    >>> need("experiments", "torch", "a_package_that_is_not_there")
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: a_package_that_is_not_there is missing: pip install "rethinking-the-neuron[experiments]"
    """
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        are = "is" if len(missing) == 1 else "are"
        raise ModuleNotFoundError(
            f'{", ".join(missing)} {are} missing: pip install "rethinking-the-neuron[{extra}]"', name=missing[0]
        )

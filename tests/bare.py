"""Run where the wheel was installed and nothing else was: `python -I tests/bare.py`, outside the checkout's packages.

There is no pytest in such an environment, so these are plain assertions.
"""

import contextlib
import importlib.util
import io
import platform
import re
import sys
import warnings
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"

if not __debug__:
    raise SystemExit("assertions are off: run without -O")

# torch warns once that it found no NumPy; the package must not.
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

for name in ("numpy", "cupy", "pytest"):
    assert importlib.util.find_spec(name) is None, f"{name} is installed: this environment proves nothing"

# The example, as it stands on the page.
shown = r"^```python\n(.*?)^```\n\n```text\n(.*?)^```"
((example, said),) = re.findall(shown, README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec(example, {})
assert printed.getvalue() == said, printed.getvalue()

import torch  # noqa: E402, after the example: it must not need what was imported before
from torch import nn  # noqa: E402

import companion  # noqa: E402
from companion import simulator  # noqa: E402
from companion.__main__ import main  # noqa: E402
from companion.study import plotting  # noqa: E402

assert "site-packages" in str(companion.__file__), "this is not the wheel"

for layer, shape in (
    (companion.AGLU(num_parameters=64), (2, 64, 5, 5)),
    (companion.LASiLU(), (4, 10)),
    (companion.DACLinear(10, 3), (4, 10)),
    (companion.DACConv2d(3, 4, 3), (2, 3, 8, 8)),
):
    z = torch.randn(shape, requires_grad=True)
    layer(z).square().sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert z.grad.abs().sum() > 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())

network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 8), nn.ReLU(), nn.Linear(8, 2))
converted = companion.to_dac(network)
assert any(isinstance(module, companion.DACLinear) for module in converted.modules())
assert converted(torch.randn(2, 3, 8, 8)).shape == (2, 2)
companion.replace_activations(network, {nn.ReLU: companion.AGLU})
assert companion.count(network, (3, 8, 8)).parameters > 0

refusal = ""
try:
    with companion.backend("simulator"):
        companion.functional.aglu(torch.zeros(3), 1.0, 1.0)
except RuntimeError as error:
    refusal = str(error)
assert refusal.startswith("kernels, on a GPU and in the simulator, need NumPy"), refusal

# The doctor is called where something is missing.
for arguments, said in (
    ((), "python -m companion"),
    (("doctor",), "companion " + companion.__version__),
    (("doctor",), f"simulator: {simulator.why_not()}\n"),
):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(arguments) == 0
    assert said in printed.getvalue(), printed.getvalue()

if (sys.platform, platform.machine()) == ("linux", "x86_64"):
    assert simulator.why_not() == 'The simulator needs NumPy: pip install "rethinking-the-neuron[simulator]"'

refusal = ""
try:
    plotting.subplots()
except ModuleNotFoundError as error:
    refusal = str(error)
assert refusal == 'matplotlib is missing: pip install "rethinking-the-neuron[book]"', refusal

print("The wheel works with nothing but torch.")

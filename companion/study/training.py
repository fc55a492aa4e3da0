"""One plain training loop for every experiment of the book: SGD with momentum, Adam or AdamW, a schedule of rates.

The loop knows nothing about the model. A module says in the class attribute ``no_weight_decay`` which of its
parameters must not be pulled towards zero; `parameter_groups` obeys.

Within `checkpoints` a training may be killed at any moment: it goes on from what it wrote last, and what it gives is
the same to the last bit.
"""

import contextlib
import io
import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.files import write_atomically
from companion.study.datasets import Part
from companion.weight_decay import parameter_groups

__all__ = [
    "Checkpoints",
    "Evaluation",
    "Loss",
    "Patience",
    "Schedule",
    "Stateful",
    "balanced_softmax",
    "checkpoints",
    "constant",
    "cosine",
    "evaluate",
    "flushed",
    "hits",
    "linear",
    "listeners",
    "mean_squared_error",
    "one_cycle",
    "predict",
    "staircase",
    "train",
    "warm_up",
]

# Step and number of steps → what the learning rate is multiplied with.
Schedule = Callable[[int, int], float]

# Outputs of a network and targets → mean loss, a 0-d tensor.
Loss = Callable[[Tensor, Tensor], Tensor]

#: Called with the loss of every step, whichever network is trained.
listeners: list[Callable[[Tensor], None]] = []


# Checkpoints.


@runtime_checkable
class Stateful(Protocol):
    """Watches a training, and can go on watching one that was interrupted.

    What it has collected is numbers, strings, tensors, and lists and dicts of them.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return what it has collected so far."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


class Checkpoints:
    """Where the trainings of one piece of work write how far they are; made by `checkpoints`.

    Parameters
    ----------
    folder : pathlib.Path
        For ``1.pt`` of the first training, ``2.pt`` of the second, and so on.
    every : float
        Seconds between two checkpoints of a training. There is one more at its end.
    """

    def __init__(self, folder: Path, every: float) -> None:
        self.folder, self.every = folder, every
        self._trainings, self._earlier = 0, 0.0
        self._begun = self._written = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the work has taken, with what was done before an interruption and is not done again."""
        return self._earlier + time.perf_counter() - self._begun

    def resume(self, state: Stateful, whole: bool) -> "_Write":
        """Let the next training go on from its file, if there is one, and return what writes it.

        Without the `whole` state of a training it is neither read nor written.
        """
        self._trainings += 1
        if not whole:
            return _write_nothing
        path = self.folder / f"{self._trainings}.pt"
        if path.exists():
            self._read(path, state)
        return partial(self._write, path, state)

    def _read(self, path: Path, state: Stateful) -> None:
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
            state.load_state_dict(held["training"])
        except (RuntimeError, LookupError, TypeError, ValueError, OSError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(
                f"{path} is damaged or of another training ({error}); remove that file, and its training begins again"
            ) from error
        self._earlier += held["seconds"] - self.seconds

    def _write(self, path: Path, state: Stateful, at_once: bool = False) -> None:
        if not at_once and time.perf_counter() - self._written < self.every:
            return
        content = io.BytesIO()
        torch.save({"training": state.state_dict(), "seconds": self.seconds}, content)
        write_atomically(path, content.getvalue())
        self._written = time.perf_counter()


class _Write(Protocol):
    """Writes how far a training is: at once, or if the last time is long enough ago."""

    def __call__(self, *, at_once: bool = False) -> None: ...


def _write_nothing(*, at_once: bool = False) -> None:
    """Where nothing is kept."""


_CHECKPOINTS: ContextVar[Checkpoints | None] = ContextVar("checkpoints", default=None)


@contextlib.contextmanager
def checkpoints(folder: Path, every: float = 60.0) -> Iterator[Checkpoints]:
    """Within it, every training writes how far it is into a file, and goes on from there when it is called again.

    What is done within must be the same each time: the files are counted, one for each call of `train`. On the machine
    that wrote it a training goes on to the last bit; the file holds the network, the optimiser, torch's global
    generators, the training's own, and what its watchers have collected. A training that has come to its end returns at
    once, so that what failed after it can be repeated alone. Where a watcher or a listener is not `Stateful`, nobody
    could give back to it what it had seen: that training writes nothing, and begins again.

    Parameters
    ----------
    folder : pathlib.Path
        For the files. Nothing removes them: who has what the trainings were for does so.
    every : float
        Seconds between two checkpoints of a training. There is one more at its end.

    Yields
    ------
    Checkpoints
        It knows for how many seconds was computed.

    Raises
    ------
    ValueError
        If a file is damaged or of another training. The message names it.

    Examples
    --------
    >>> import tempfile
    >>> data = Part(torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> def work():
    ...     torch.manual_seed(0)
    ...     return train(nn.Linear(2, 2), data, epochs=3, learning_rate=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with checkpoints(Path(folder)):
    ...         first = work()
    ...     with checkpoints(Path(folder)):  # as after a kill
    ...         first == work()
    True
    """
    made = Checkpoints(folder, every)
    token = _CHECKPOINTS.set(made)
    try:
        yield made
    finally:
        _CHECKPOINTS.reset(token)


@dataclass
class _Progress:
    """How far a training is: all that its next step depends on, apart from what it was called with.

    `order` is the state of the training's own generator before it drew the order of this epoch, so that it draws the
    same one again.
    """

    model: nn.Module
    rule: torch.optim.Optimizer
    generator: torch.Generator
    total: Tensor
    watchers: list[Stateful]
    order: Tensor = field(init=False)
    losses: list[float] = field(default_factory=list)
    step: int = 0
    batches: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        self.order = self.generator.get_state()

    def begin_epoch(self) -> None:
        """Nothing of the next epoch is done."""
        self.order, self.batches = self.generator.get_state(), 0
        self.total.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return it as a file can hold it."""
        device = self.total.device
        return {
            "model": self.model.state_dict(),
            "rule": self.rule.state_dict(),
            "order": self.order,
            "generator": torch.get_rng_state(),
            "generator_of_device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            "watchers": [watcher.state_dict() for watcher in self.watchers],
            "total": self.total,
            "losses": self.losses,
            "step": self.step,
            "batches": self.batches,
            "ended": self.ended,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(state["model"])
        self.rule.load_state_dict(state["rule"])
        for watcher, held in zip(self.watchers, state["watchers"], strict=True):
            watcher.load_state_dict(held)
        self.order = state["order"]
        self.generator.set_state(self.order)
        torch.set_rng_state(state["generator"])
        if state["generator_of_device"] is not None:
            torch.cuda.set_rng_state(state["generator_of_device"], self.total.device)
        self.total.copy_(state["total"])
        self.losses[:] = state["losses"]
        self.step, self.batches, self.ended = state["step"], state["batches"], state["ended"]


# Schedules.


def cosine(step: int, steps: int) -> float:
    """Return ½(1 + cos(π·step/steps)): from 1 at the first step towards 0 after the last.

    Parameters
    ----------
    step : int
        Counted from 0.
    steps : int
        Of the whole training.

    Returns
    -------
    float
        What the learning rate is multiplied with.

    Examples
    --------
    >>> cosine(0, 100), cosine(50, 100)
    (1.0, 0.5)
    """
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def constant(step: int, steps: int) -> float:
    """Return 1: the learning rate stays as it is.

    Parameters
    ----------
    step, steps : int
        As in `cosine`.

    Returns
    -------
    float
        What the learning rate is multiplied with.
    """
    return 1.0


def linear(step: int, steps: int) -> float:
    """Return 1 − step/steps: in a straight line from 1 at the first step towards 0 after the last.

    Behind `warm_up` it makes a triangle.

    Parameters
    ----------
    step, steps : int
        As in `cosine`.

    Returns
    -------
    float
        What the learning rate is multiplied with.

    Examples
    --------
    >>> triangle = warm_up(0.25, linear)
    >>> [round(triangle(step, 8), 2) for step in range(8)]
    [0.5, 1.0, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17]
    """
    return 1 - step / steps


def one_cycle(step: int, steps: int) -> float:
    """Return one cycle: a cosine up from 1/25 to 1 in the first three tenths, and a cosine down to 1/250,000.

    The formula and the numbers are those of torch's OneCycleLR as it comes; the momentum stays as it is. The learning
    rate that this is multiplied with is the highest, not the first.

    Parameters
    ----------
    step, steps : int
        As in `cosine`.

    Returns
    -------
    float
        What the learning rate is multiplied with.

    References
    ----------
    Smith, Topin (2018), Super-convergence: very fast training of neural networks using large learning rates.

    Examples
    --------
    >>> [round(one_cycle(step, 100), 3) for step in (0, 29, 64, 99)]
    [0.04, 1.0, 0.5, 0.0]
    """
    first, last = 1 / 25, 1 / 25 / 1e4
    top = 0.3 * steps - 1
    if step <= top:
        start, end, fraction = first, 1.0, step / top
    else:
        start, end, fraction = 1.0, last, (step - top) / (steps - 1 - top)
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * fraction))


def warm_up(fraction: float, then: Schedule = cosine) -> Schedule:
    """Return a schedule that rises in a straight line to 1, and then follows another one.

    Parameters
    ----------
    fraction : float
        Of all steps, from 0 to below 1: how long it rises.
    then : callable
        The schedule for the steps after that.

    Returns
    -------
    callable
        A schedule for `train`.

    Raises
    ------
    ValueError
        If the fraction is out of range.

    Examples
    --------
    >>> schedule = warm_up(0.5)
    >>> [round(schedule(step, 8), 2) for step in range(8)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.85, 0.5, 0.15]
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction is {fraction}; allowed is 0 up to below 1")

    def schedule(step: int, steps: int) -> float:
        rising = int(fraction * steps)
        return (step + 1) / rising if step < rising else then(step - rising, steps - rising)

    return schedule


def staircase(milestones: Sequence[float], factor: float = 0.1) -> Schedule:
    """Return a schedule that multiplies the learning rate by a factor at some points of the training.

    Parameters
    ----------
    milestones : sequence of float
        Fractions of the training, each between 0 and 1: ½ is after half of the steps.
    factor : float
        Of each milestone, positive.

    Returns
    -------
    callable
        A schedule for `train`.

    Raises
    ------
    ValueError
        If a milestone lies outside the training or the factor is not positive.

    Examples
    --------
    >>> schedule = staircase([0.5, 0.75])
    >>> [f"{schedule(step, 80):g}" for step in (0, 39, 40, 59, 60, 79)]
    ['1', '1', '0.1', '0.1', '0.01', '0.01']
    """
    if not all(0 < milestone < 1 for milestone in milestones) or factor <= 0:
        raise ValueError(
            f"milestones is {list(milestones)} and factor is {factor}; allowed are fractions between 0 and 1 and a "
            "positive factor"
        )

    def schedule(step: int, steps: int) -> float:
        return float(factor ** sum(step >= milestone * steps for milestone in milestones))

    return schedule


def balanced_softmax(counts: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    r"""Return the cross-entropy of a softmax in which each class weighs as much as it has training examples.

    .. math:: L = -\log \frac{n_y e^{z_y}}{\sum_j n_j e^{z_j}}

    The logits no longer have to say how frequent a class is: the counts do. In evaluation the plain logits are
    compared, as if all classes were equally frequent. With equal counts it is the ordinary cross-entropy.

    Parameters
    ----------
    counts : Tensor
        :math:`n_j`, (classes,): how many training examples each class has, ``torch.bincount`` of the targets. A class
        without any has probability 0.

    Returns
    -------
    callable
        (logits, targets) → mean loss, for `train`.

    Raises
    ------
    ValueError
        If `counts` is no vector; when called, if the logits have another number of classes.

    References
    ----------
    Ren et al. (2020), Balanced meta-softmax for long-tailed visual recognition, theorem 1.

    Examples
    --------
    >>> loss = balanced_softmax(torch.tensor([3, 1]))
    >>> [round(loss(torch.zeros(1, 2), torch.tensor([label])).exp().item(), 4) for label in (0, 1)]
    [1.3333, 4.0]
    """
    if counts.ndim != 1:
        raise ValueError(f"counts: got shape {tuple(counts.shape)}, allowed is (classes,)")
    prior = counts.to(torch.promote_types(counts.dtype, torch.float32)).log()

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        if logits.shape[1:] != prior.shape:
            raise ValueError(f"logits: got shape {tuple(logits.shape)}, allowed is (N, {len(prior)})")
        # log n_j + z_j, and an ordinary softmax
        return F.cross_entropy(logits + prior.to(logits.device), targets)

    return loss


def train(
    model: nn.Module,
    data: Part,
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int = 64,
    weight_decay: float = 1e-4,
    decay: Literal["all", "kernels"] = "all",
    momentum: float = 0.9,
    nesterov: bool = False,
    seed: int = 0,
    augment: Callable[[Tensor], Tensor] | None = None,
    schedule: Schedule = cosine,
    loss: Loss = F.cross_entropy,
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd",
    clip: float | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
    compiled: bool = False,
    after_epoch: Callable[[int], bool | None] | None = None,
) -> list[float]:
    """Train a network; by default a classifier, with cross-entropy and SGD with momentum.

    The schedule is asked at every step; there is no warm-up. Batches are drawn without replacement; the last one
    of an epoch may be smaller. The model is trained in place and left in training mode.

    Parameters
    ----------
    model : nn.Module
        Maps inputs to what `loss` takes, by default logits (N, classes).
    data : Part
        On the model's device.
    epochs : int
        Passes over the data, at most.
    learning_rate : float
        What `schedule` multiplies: with the default the rate of the first step.
    batch_size : int
        Examples per step.
    weight_decay : float
        For all parameters but those exempted, see `parameter_groups`. It is added to the gradient, with Adam too; with
        AdamW the weights shrink by it times the learning rate.
    decay : str
        As in `parameter_groups`.
    momentum : float
        Of SGD.
    nesterov : bool
        Whether it is Nesterov's.
    seed : int
        Decides the order of the examples, and nothing else: dropout and augmentation draw from torch's global
        generator.
    augment : callable, optional
        Applied to the inputs of each batch.
    schedule : callable
        Step and number of steps → what the learning rate is multiplied with; default: `cosine`, down to zero.
    loss : callable
        The network's output for a batch and its targets → mean loss, a 0-d tensor.
    optimiser : str
        "sgd", "adam" or "adamw".
    clip : float, optional
        The most that the norm of the whole gradient may be; a longer one is shortened to it.
    precision : str
        "bfloat16": the network runs under autocast. Weights, optimiser, loss and running statistics stay in float32.
        A GPU below compute capability 8.0 emulates it, and torch.compile refuses it there.
    compiled : bool
        Whole batches go through torch.compile, as one graph. A smaller last batch does not: it would be a second
        graph, as long in the making as the first. A process that is killed while it compiles may leave a broken file in
        torch's cache, which fails the next one: what may be killed should have a folder of its own in
        ``TORCHINDUCTOR_CACHE_DIR``.
    after_epoch : callable, optional
        Called with the number of the epoch, from 1, when it is over: to watch a network while it learns. If it returns
        true, the training ends. Within `checkpoints` it is `Stateful`, or the training cannot be interrupted.

    Returns
    -------
    list of float
        Mean training loss of every epoch, as seen during that epoch.

    Raises
    ------
    ValueError
        If the optimiser or the precision is unknown.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> inputs = torch.randn(64, 1, 1, 2)
    >>> data = Part(inputs, (inputs.sum((1, 2, 3)) > 0).long())
    >>> losses = train(nn.Sequential(nn.Flatten(), nn.Linear(2, 2)), data, epochs=20, learning_rate=0.1)
    >>> losses[-1] < losses[0]
    True
    """
    groups = parameter_groups(model, weight_decay, decay)
    rule: torch.optim.Optimizer
    match optimiser:
        case "sgd":
            rule = torch.optim.SGD(
                groups, lr=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay
            )
        case "adam":
            rule = torch.optim.Adam(groups, lr=learning_rate, weight_decay=weight_decay)
        case "adamw":
            rule = torch.optim.AdamW(groups, lr=learning_rate, weight_decay=weight_decay)
        case _:
            raise ValueError(f"optimiser is {optimiser!r}; allowed are sgd, adam, adamw")
    whole, rest = (_forward(model, precision, compiles) for compiles in (compiled, False))
    generator = torch.Generator().manual_seed(seed)
    steps = epochs * math.ceil(len(data) / batch_size)
    watching = [watcher for watcher in (after_epoch, *listeners) if watcher is not None]
    stateful = _stateful(watching)
    at = _Progress(model, rule, generator, torch.zeros((), device=data.inputs.device), stateful, ended=epochs == 0)
    kept = _CHECKPOINTS.get()
    write = kept.resume(at, whole=len(stateful) == len(watching)) if kept else _write_nothing
    model.train()
    while not at.ended:
        order = torch.randperm(len(data), generator=generator).to(data.targets.device)
        for batch in torch.split(order, batch_size)[at.batches :]:
            for group in rule.param_groups:
                group["lr"] = learning_rate * schedule(at.step, steps)
            inputs = data.inputs[batch]
            forward = whole if len(batch) == batch_size else rest
            value = loss(forward(augment(inputs) if augment else inputs), data.targets[batch])
            rule.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            rule.step()
            for listener in listeners:
                listener(value.detach())
            at.total += value.detach() * len(batch)
            at.step += 1
            at.batches += 1
            write()
        at.losses.append(float(at.total) / len(data))
        at.begin_epoch()
        stopped = after_epoch is not None and after_epoch(len(at.losses))
        at.ended = bool(stopped) or len(at.losses) == epochs
    write(at_once=True)
    return at.losses


@contextlib.contextmanager
def flushed() -> Iterator[None]:
    """Numbers below the smallest normal one, 1.2e-38 in float32, count as 0 on a CPU.

    Weight decay that goes through Adam leads the weights of dead units there, where a processor takes many times as
    long for each.

    Examples
    --------
    >>> tiny = torch.tensor([1e-30])
    >>> with flushed():
    ...     inside = tiny * 1e-10
    >>> bool(inside == 0), bool(tiny * 1e-10 == 0)
    (True, False)
    """
    before = not bool(torch.full((1,), 1e-30) * 1e-10)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _stateful(watching: Sequence[object]) -> list[Stateful]:
    """Return those that can go on with a training that was interrupted."""
    return [watcher for watcher in watching if isinstance(watcher, Stateful)]


def _forward(model: nn.Module, precision: str, compiled: bool) -> Callable[[Tensor], Tensor]:
    """Return what computes the network's output for a batch."""
    if precision not in ("float32", "bfloat16"):
        raise ValueError(f"precision is {precision!r}; allowed are float32, bfloat16")
    run: Callable[[Tensor], Tensor] = model
    if compiled:
        # What this process compiled before counts towards a limit, and trainings follow each other in a worker.
        torch.compiler.reset()
        # No helpers that compile: two workers keep two cores busy.
        run = torch.compile(model, fullgraph=True, dynamic=False, options={"compile_threads": 1})
    if precision == "float32":
        return run

    def mixed(inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, torch.bfloat16):
            output: Tensor = run(inputs)
        return output.float()

    return mixed


@dataclass
class Patience:
    """Says when an error has stopped falling.

    Nothing is watched before epoch `start`. From then on, an error is better if it is below the best so far by more
    than `threshold`; after `epochs` of them without a better one the training should end.

    Parameters
    ----------
    start : int
        The first epoch that counts, from 1.
    epochs : int
        How many epochs to wait.
    threshold : float
        An absolute difference of errors.

    Examples
    --------
    >>> patience = Patience(start=2, epochs=2, threshold=0.1)
    >>> [patience(epoch, error) for epoch, error in enumerate([0.1, 1.0, 0.95, 0.8, 0.75, 0.75], start=1)]
    [False, False, False, False, False, True]
    """

    start: int
    epochs: int
    threshold: float
    _best: float = math.inf
    _since: int = 0

    def __call__(self, epoch: int, error: float) -> bool:
        """Return whether the training should end after this epoch; call it once per epoch."""
        if epoch < self.start:
            return False
        if error < self._best - self.threshold:
            self._best, self._since = error, 0
            return False
        self._since += 1
        return self._since >= self.epochs


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor, batch_size: int = 1024) -> Tensor:
    """Return the outputs of a model in evaluation mode; the model's mode is as before afterwards.

    Parameters
    ----------
    model : nn.Module
        Maps inputs to logits, or to what it predicts.
    inputs : Tensor
        Shape (N, …).
    batch_size : int
        Examples per call of the model.

    Returns
    -------
    Tensor
        Shape (N, classes), or whatever the model gives for N examples.
    """
    training = model.training
    model.eval()
    logits = torch.cat([model(chunk) for chunk in torch.split(inputs, batch_size)])
    model.train(training)
    return logits


@dataclass(frozen=True)
class Evaluation:
    """How well a classifier does on one part of the data.

    Parameters
    ----------
    loss : float
        Mean cross-entropy.
    accuracy : float
        Fraction of correct predictions.
    class_accuracy : Tensor
        Shape (classes,): the same per class; NaN for a class that the part does not hold.
    """

    loss: float
    accuracy: float
    class_accuracy: Tensor

    def accuracy_of(self, classes: Tensor) -> float:
        """Return the mean accuracy of some classes, each with the same weight."""
        return float(self.class_accuracy[classes].mean())


def hits(logits: Tensor, targets: Tensor) -> Tensor:
    """Return which examples have their class's logit on top, 1 or 0; all NaN where a logit is, for it has no place.

    Parameters
    ----------
    logits : Tensor
        (N, classes).
    targets : Tensor
        (N,).

    Returns
    -------
    Tensor
        (N,), float64, whose mean is the accuracy.

    Examples
    --------
    >>> logits = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    >>> hits(logits, torch.tensor([1, 1])), hits(logits / 0 * 0, torch.tensor([0, 0]))
    (tensor([1., 0.], dtype=torch.float64), tensor([nan, nan], dtype=torch.float64))
    """
    found = (logits.argmax(1) == targets).double()
    return found if not bool(logits.isnan().any()) else torch.full_like(found, math.nan)


def evaluate(model: nn.Module, data: Part) -> Evaluation:
    """Judge a classifier in evaluation mode. One that gives NaN has no accuracy.

    Parameters
    ----------
    model : nn.Module
        Maps (N, C, H, W) to logits (N, classes).
    data : Part
        On the model's device.

    Returns
    -------
    Evaluation
        Loss and accuracies.
    """
    logits = predict(model, data.inputs)
    classes = logits.shape[1]
    correct, targets = hits(logits, data.targets).cpu(), data.targets.cpu()
    right = torch.bincount(targets, weights=correct, minlength=classes)
    return Evaluation(
        loss=float(F.cross_entropy(logits, data.targets)),
        accuracy=float(correct.mean()),
        class_accuracy=right / torch.bincount(targets, minlength=classes),
    )


def mean_squared_error(model: nn.Module, data: Part) -> float:
    """Return the mean squared error of a model in evaluation mode.

    Parameters
    ----------
    model : nn.Module
        Maps inputs to predictions, one per example, of shape (N,).
    data : Part
        For regression, on the model's device.

    Returns
    -------
    float
        Not a number if the model diverged.
    """
    return float((predict(model, data.inputs) - data.targets).cpu().double().square().mean())

"""What an experiment is, and the list of all of them."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from companion import rooms

__all__ = ["Case", "Experiment", "Job", "Row", "experiments", "get", "grid", "register"]

Case = dict[str, Any]
Row = dict[str, Any]

#: What a preset says that no job is told.
OF_THE_RUN = ("seeds", "learning_rates", "tuning_seeds", "competitors")
#: What a machine may need otherwise than a preset has it, and what it may be.
OF_THE_MACHINE = {"device": ("cpu", "cuda"), "precision": ("float32", "bfloat16")}


@dataclass(frozen=True)
class Job:
    """The smallest piece of work that is run, written and resumed as a whole.

    Everything in it can be written as JSON, and everything that its outcome depends on, apart from the code,
    is in it.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    stage : str
        "tuning" or "evaluation".
    case : dict
        Competitor and condition, for example activation and imbalance.
    settings : dict
        The preset, without its seeds, its grid of learning rates and its list of competitors.
    seed : int
        Decides everything random.
    learning_rate : float or None
        The one to try (tuning) or the one that won (evaluation); None where nothing is tuned.
    """

    experiment: str
    stage: Literal["tuning", "evaluation"]
    case: Case
    settings: dict[str, Any]
    seed: int
    learning_rate: float | None

    @property
    def rate(self) -> float:
        """The learning rate, where there must be one."""
        if self.learning_rate is None:
            raise ValueError(f"{self.experiment} has no learning rate: the experiment does not tune")
        return self.learning_rate

    def as_dict(self) -> dict[str, Any]:
        """Return the job as JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True)
class Experiment:
    """A question, and the runs that answer it.

    An experiment with `validate` has two stages. Tuning: each case meets the same learning rates of the preset
    (``learning_rates``), with the tuning seeds (``tuning_seeds``); the rate with the highest mean score wins, the
    smaller one if two are equal. Where the winner of any case is the smallest or the largest of the rates, all cases
    under the same conditions meet the next one beyond, at most four times, until every winner lies inside (but not in
    "smoke"). Evaluation: each case runs with its own winner and the evaluation seeds 0 … n − 1. The two kinds of seeds
    must not overlap. An experiment without `validate`, or a preset without tuning seeds, evaluates each case at every
    learning rate of the preset, or without any.

    Parameters
    ----------
    name : str
        "<mechanism>-<what>", lower case, a hyphen for each underscore.
    mechanism : str
        The folder of companion/, or of companion/study/, that registers it.
    description : str
        One sentence: what is compared on what.
    presets : mapping of str to mapping
        Settings by preset: "smoke" (seconds, for tests), "laptop" (minutes on two cores, real data), "full";
        "excerpt": some cases of "full" on two cores, nothing else reduced but, where the experiment says so, the
        schedule to a tenth.
        Each needs "seeds" (how many); where it is to be tuned also "learning_rates" and "tuning_seeds" (lists). It may
        have "competitors", a list for `cases` that no job is told: with another one beside them, what the others gave
        stands.
        The files of a "dataset" are asked for before a run begins. The rest is the experiment's own.
    cases : callable
        The preset → list of cases; see `grid`.
    measure : callable
        Job → list of rows. The runner adds the case, the seed and the learning rate to each row. A function
        of a module, so that worker processes can import it.
    columns : tuple of str
        Keys of the rows that tables show, as mean and interval over seeds.
    validate : callable, optional
        Job → score on validation data, higher is better. Must not look at test data.
    one_rate_for : tuple of str
        Keys of the case whose values share a learning rate: the one with the best mean score over all of
        them. For what is compared at equal settings; competitors have a rate each.
    conditions : tuple of str
        Keys of the case that say under which condition the competitors meet, such as "imbalance", and not who they
        are. Cases that differ in one are not compared with each other: each condition has a grid of its own, common to
        all its competitors, and the numbers of one seed and condition have one precision.
    timed : bool
        Whether rows hold times, so that all have to come from one machine.
    tolerance : float
        By how much measures of the smoke preset may differ between processors, absolutely and, above 1, relatively.
    """

    name: str
    mechanism: str
    description: str
    presets: Mapping[str, Mapping[str, Any]]
    cases: Callable[[Mapping[str, Any]], list[Case]]
    measure: Callable[[Job], list[Row]]
    columns: tuple[str, ...]
    validate: Callable[[Job], float] | None = None
    one_rate_for: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    timed: bool = False
    # With and without vector extensions measures differ by 4e-6 of max(1, measure); one test image of 450 is 2.2e-3.
    tolerance: float = 3e-3

    def condition(self, case: Case) -> tuple[Any, ...]:
        """Return under which condition a case competes: the values of `conditions`, None where it has none."""
        return tuple(case.get(key) for key in self.conditions)

    def preset(self, preset: str) -> Mapping[str, Any]:
        """Return the settings of a preset, or raise ValueError that names those there are."""
        if preset not in self.presets:
            raise ValueError(f"preset is {preset!r}; {self.name} has {', '.join(self.presets)}")
        return self.presets[preset]

    def settings(self, preset: str, device: str | None = None, precision: str | None = None) -> dict[str, Any]:
        """Return what the jobs of a preset are told: all but seeds, learning rates and competitors.

        Parameters
        ----------
        preset : str
            Which.
        device : str, optional
            "cpu" or "cuda", instead of the preset's.
        precision : str, optional
            "float32" or "bfloat16", instead of the preset's.

        Raises
        ------
        ValueError
            If the preset, the device or the precision is unknown, or the preset has no such setting.
        """
        settings = {key: value for key, value in self.preset(preset).items() if key not in OF_THE_RUN}
        for key, value in (("device", device), ("precision", precision)):
            if value is None:
                continue
            if value not in OF_THE_MACHINE[key] or key not in settings:
                allowed = ", ".join(OF_THE_MACHINE[key]) if key in settings else f"none: its setting has no {key}"
                raise ValueError(f"{key} is {value!r}; {self.name} {preset} has {allowed}")
            settings[key] = value
        return settings


_EXPERIMENTS: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known to the command line.

    Parameters
    ----------
    experiment : Experiment
        Its name must be new.

    Returns
    -------
    Experiment
        The same.

    Raises
    ------
    ValueError
        If the name is taken or does not begin with the mechanism, or a key is a condition and shares a rate.
    """
    if experiment.name in _EXPERIMENTS:
        raise ValueError(f"the experiment {experiment.name!r} is registered twice")
    beginning = experiment.mechanism.replace("_", "-") + "-"
    if not experiment.name.startswith(beginning):
        raise ValueError(f"name is {experiment.name!r}; it must begin with {beginning!r}")
    if both := sorted(set(experiment.conditions) & set(experiment.one_rate_for)):
        raise ValueError(f"{', '.join(both)} of {experiment.name} is in conditions and in one_rate_for; allowed is one")
    _EXPERIMENTS[experiment.name] = experiment
    return experiment


def experiments() -> list[Experiment]:
    """Return all experiments, sorted by name."""
    rooms.studies("experiments")
    return [_EXPERIMENTS[name] for name in sorted(_EXPERIMENTS)]


def get(name: str) -> Experiment:
    """Return an experiment by name.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    known = {experiment.name: experiment for experiment in experiments()}
    if name not in known:
        raise ValueError(f"name is {name!r}; the experiments are {', '.join(known)}")
    return known[name]


def grid(**axes: Sequence[Any]) -> list[Case]:
    """Return all combinations of some axes, the last axis running fastest.

    Examples
    --------
    >>> grid(gate=["sigmoid", "apa"], imbalance=[1, 100])[:2]
    [{'gate': 'sigmoid', 'imbalance': 1}, {'gate': 'sigmoid', 'imbalance': 100}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]

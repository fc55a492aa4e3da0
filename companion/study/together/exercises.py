"""The exercises of the chapters on all mechanisms: the right answers, and the mistakes that have words of their own."""

from companion.study.analysis import holm
from companion.study.exercises import Exercise

__all__ = ["EXERCISES"]

P_VALUES, LEVEL = (0.004, 0.03, 0.015, 0.04), 0.05
"""Of four neurons that are compared with GELU."""

NEITHER, FIRST, SECOND, BOTH = 97.0, 97.4, 97.9, 98.0
"""What four networks reach, in per cent."""

IMAGES, EPOCHS, FORWARD, CORE = 60_000, 12, 0.1e9, 50e9
"""Of a training; operations of a forward pass, and those of a core in a second."""


WIDTH, DEVIATION = 256, 0.02
"""Of a transformer, and of the weights that it begins with."""


def straight(root: float = 0.5, factor: float = 0.5) -> float:
    """Which share of what SiLU gives at first is not a line, by its first term, s²/2."""
    return factor * DEVIATION**2 * float(WIDTH ** (2 * root))


def clear() -> int:
    """How many of the p values are significant together."""
    return sum(p <= LEVEL for p in holm(P_VALUES))


def interaction() -> float:
    """What two neurons gain together and not each alone, in points."""
    return BOTH - FIRST - SECOND + NEITHER


def hours(forwards: float = 3.0) -> float:
    """Of a core, if a step costs so many forward passes."""
    return forwards * FORWARD * IMAGES * EPOCHS / CORE / 3600


EXERCISES = (
    Exercise(
        "which-neuron-1",
        clear,
        mistakes={
            "That is Bonferroni's count: Holm's bound grows with each difference that is found.": (
                lambda: sum(p <= LEVEL / len(P_VALUES) for p in P_VALUES)
            ),
            "That is the count without a correction.": lambda: sum(p <= LEVEL for p in P_VALUES),
            "Holm ends at the first p above its bound; whatever is larger is not decided, too.": (
                lambda: sum(p <= LEVEL / (len(P_VALUES) - rank) for rank, p in enumerate(sorted(P_VALUES)))
            ),
        },
    ),
    Exercise(
        "how-sharp-1",
        straight,
        mistakes={
            "Squares add up: a sum of n numbers with the deviation d has the deviation d√n, not d n.": (
                lambda: straight(root=1.0)
            ),
            "Half of it: the share is s²/2.": lambda: straight(factor=1.0),
            "That is s, the size of what the curve is given; the share is s²/2.": lambda: DEVIATION * WIDTH**0.5,
        },
    ),
    Exercise(
        "composing-1",
        interaction,
        mistakes={
            "That is the pair less the better of its two: the first question.": lambda: BOTH - max(FIRST, SECOND),
            "That is all that the pair gains; take away what each gains alone.": lambda: BOTH - NEITHER,
            "That is what two gains would be if they added up; the pair's own is still to be compared with it.": (
                lambda: FIRST + SECOND - 2 * NEITHER
            ),
            "What neither reaches is in both of those that are subtracted: add it once.": (
                lambda: BOTH - FIRST - SECOND
            ),
        },
    ),
    Exercise(
        "scaling-out-1",
        hours,
        mistakes={
            "That is forward alone: the backward pass costs about twice as much again.": lambda: hours(1),
            "That is the backward pass alone.": lambda: hours(2),
            "Those are seconds.": lambda: hours() * 3600,
            "Those are minutes.": lambda: hours() * 60,
            "That is one epoch.": lambda: hours() / EPOCHS,
            "Those are the hours of one image.": lambda: hours() / IMAGES,
        },
    ),
)

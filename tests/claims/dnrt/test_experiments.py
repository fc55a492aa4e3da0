"""What the paper on DNRT says of trained networks: what no run of ours has decided, and what would decide it."""

from __future__ import annotations

from tests.claims.dnrt.facts import detail, fatal, matters
from tests.claims.form import not_tested, number


@matters(
    "dnrt-experiment-gaussian",
    "A class's aggregated responses follow roughly a normal law in each channel, wider in networks that perform "
    "poorly.",
    "Sections 1 and 3.2, Fig. 1",
)
def test_gaussian():
    return not_tested(
        "The paper shows pictures of networks that it does not name and measures nothing.",
        "Skewness and spread within classes, relative to the distance between them, in networks of known accuracy "
        "would decide it.",
    )


@matters(
    "dnrt-experiment-sparser",
    "RAA, GELU with a learned offset in its gate, makes responses considerably sparser than GELU.",
    "Section 5.6, Appendix A.4, Figs. 2 and 4",
)
def test_sparser():
    return not_tested(
        "The paper shows pictures of one network on one data set; outputs of GELU and of RAA are hardly ever exactly "
        "zero, so that sparse has to be defined.",
        "The share of outputs below a small part of their deviation, with both, over seeds would decide it.",
    )


@matters(
    "dnrt-experiment-relevance",
    "RAA suppresses most of what is irrelevant to a network's decision and makes the network more interpretable.",
    "Abstract, Appendices A.1 and A.4",
)
def test_relevance():
    return not_tested(
        "That responses are sparser does not show which of them were irrelevant, and relevance is not measured.",
        "RAA's gates on features that are known to be irrelevant, and on others, would decide it.",
    )


@fatal(
    "dnrt-experiment-focused",
    "ARR, a loss that pulls responses to their class's mean, makes trained networks' classes easier to tell apart.",
    "Section 5.6, Appendix A.4, Figs. 2 and 4",
)
def test_focused():
    return not_tested(
        "The paper shows narrower responses of single channels; smaller responses are narrower, too, at the same "
        "overlap of classes.",
        "The spread within classes relative to that between them, on test images with and without ARR, would decide "
        "it.",
    )


@fatal(
    "dnrt-experiment-overfitting",
    "ARR, a loss that pulls responses to their class's mean, overcomes overfitting where images are hardly augmented.",
    "Section 4.2, Appendix A.6, Fig. 5",
)
def test_overfitting():
    return not_tested(
        "The paper shows curves of ViT-Tiny on CIFAR-10 in Fig. 5, and gives no number.",
        "The gap between training and test accuracy with and without ARR, over seeds and beside weight decay, would "
        "decide it.",
    )


@matters(
    "dnrt-experiment-versions",
    "That the offset in RAA's gate depends on the input, and is not a learned number, is crucial for better "
    "performance.",
    "Section 4.1, Eqs. 2 to 4",
)
def test_versions():
    return not_tested(
        "No table compares Eq. 2 or Eq. 3 with Eq. 4.",
        "The same network with GELU and with each of the three equations, over seeds, would decide it.",
    )


@detail(
    "dnrt-experiment-momentum",
    "Accuracy hardly depends on the momentum m of ARR's moving means between 0.1 and 0.8, and suffers outside.",
    "Appendix A.2, Fig. 3",
)
def test_momentum():
    return not_tested(
        "The paper shows one curve, ViT-Tiny on CIFAR-100, and its own value, 0.1, lies at the edge of that range.",
        "Trainings with m from 0.01 to 1 over seeds would decide it.",
    )


@matters(
    "dnrt-experiment-lambda",
    "Small weights λ of ARR's loss do not hurt accuracy, which hardly depends on λ unless it is too large.",
    "Appendix A.2, Fig. 3",
)
def test_lambda():
    without, best = (number("dnrt-table-5", name, network="ViT-Tiny") for name in ("raa", "dnrt"))
    return not_tested(
        f"On CIFAR-100, ViT-Tiny has {without:g} % without ARR, λ = 0, and {best:g} % with it, at λ ≈ 20, so that "
        "somewhere between them accuracy does depend on λ; other networks have no curve.",
        "Trainings of several networks with λ from 0 to 100 over seeds would decide it.",
    )


@fatal(
    "dnrt-experiment-transformers",
    "Vision Transformers trained from scratch on CIFAR and ImageNet are several points more accurate with DNRT.",
    "Section 5.2, Appendix A.3, Tables 2 and 9",
)
def test_transformers():
    return not_tested(
        "No run of ours has ViT-Tiny's 300 epochs; the paper's numbers are single and without deviations.",
        "Trainings of ViT-Tiny on CIFAR-100 at the paper's settings with GELU, RAA and DNRT, five seeds each, would "
        "decide it.",
    )


@matters(
    "dnrt-experiment-other-tasks",
    "DNRT is better than ReLU and GELU on DGraph and long-tailed CIFAR-10, and than spiking activations in ResNet-19.",
    "Section 5.4, Appendix A.5, Tables 4 and 10",
)
def test_other_tasks():
    return not_tested(
        "No run of ours has graphs, long tails or ResNet-19, and on what ARR acts in a graph is not said.",
        "Trainings of those networks on those data sets with five seeds would decide it.",
    )

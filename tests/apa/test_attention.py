import math

import pytest
import torch

from companion.apa.study.attention import attention_entropy


def test_the_entropy_is_equation_4():
    a = torch.tensor([[0.2, 0.9, 0.5]], dtype=torch.float64)
    expected = -sum(x * math.log(x) + (1 - x) * math.log(1 - x) for x in (0.2, 0.9, 0.5)) / 3
    assert attention_entropy(a).tolist() == pytest.approx([expected])


def test_the_entropy_is_largest_at_one_half_and_zero_at_both_ends():
    # The paper takes a small entropy for "all channels pass"; "no channel passes" has the same entropy.
    assert attention_entropy(torch.full((2, 7), 0.5)).tolist() == pytest.approx([math.log(2)] * 2)
    assert attention_entropy(torch.tensor([0.0, 0.0])) == attention_entropy(torch.tensor([1.0, 1.0])) == 0


def test_integers_are_refused():
    with pytest.raises(TypeError, match="weights has dtype"):
        attention_entropy(torch.tensor([0, 1]))

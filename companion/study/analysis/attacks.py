"""Images that are changed a little to be classified wrongly: an attack by projected gradients.

An accuracy under attack is the attack's as much as the network's: where gradients vanish, the attack fails and the
network is none the better. Who reports one shows that more steps do more, that one step does not do more than many,
that noise of the same size does less, and that with no bound nothing withstands.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["margin", "projected_gradient"]


def margin(logits: Tensor, targets: Tensor) -> Tensor:
    """Return by how much the largest wrong logit exceeds that of the class: positive for an error.

    Its gradient does not vanish for a network that is sure, as that of the cross-entropy does.

    Parameters
    ----------
    logits : Tensor
        Shape (N, classes).
    targets : Tensor
        Shape (N,), int64.

    Returns
    -------
    Tensor
        Shape (N,).

    Examples
    --------
    >>> margin(torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([1]))
    tensor([-2.])
    """
    own = logits.gather(1, targets[:, None])
    others = logits.scatter(1, targets[:, None], -torch.inf)
    return (others.amax(1, keepdim=True) - own)[:, 0]


def projected_gradient(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    epsilon: float,
    steps: int = 40,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    r"""Change each pixel by at most ε so that the margin of an error grows.

    .. math::
        x_{t+1} = \Pi\bigl(x_t + \alpha\,\operatorname{sign}\nabla m(x_t)\bigr),\qquad
        \alpha = \varepsilon \min(1, 2.5/T)

    where :math:`\Pi` clips to the distance ε from the image and to [0, 1], and m is the `margin`. It starts at the
    image itself, and nothing is drawn.

    Parameters
    ----------
    model : nn.Module
        Takes images between 0 and 1; what standardises them is part of it. It is attacked in evaluation mode, and is
        afterwards in the mode that it was in.
    images : Tensor
        Shape (N, C, H, W), between 0 and 1.
    targets : Tensor
        Shape (N,): their classes.
    epsilon : float
        The most that a pixel may change, in the units of the pixels.
    steps : int
        T, 1 or more.
    watch : callable, optional
        Called before each step, and after the last, with the number of steps done and the margins (N,).

    Returns
    -------
    Tensor
        Shape of `images`.

    Raises
    ------
    ValueError
        If ε is negative, there is no step, or a pixel is not between 0 and 1.

    References
    ----------
    Madry et al. (2018), Towards deep learning models resistant to adversarial attacks. Carlini, Wagner (2017), for the
    margin.

    Examples
    --------
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> image = torch.tensor([[[[0.75, 0.5]]]])
    >>> projected_gradient(model, image, torch.tensor([0]), epsilon=0.25)
    tensor([[[[0.5000, 0.7500]]]])
    """
    if epsilon < 0 or steps < 1:
        raise ValueError(f"epsilon is {epsilon} and steps is {steps}; allowed are 0 or more and 1 or more")
    if not bool(((images >= 0) & (images <= 1)).all()):
        raise ValueError("images has pixels that are not between 0 and 1: standardise in the model, not before it")
    size = epsilon * min(1, 2.5 / steps)
    low, high = (images - epsilon).clamp(min=0), (images + epsilon).clamp(max=1)
    training = model.training
    model.eval()
    x = images
    for step in range(steps):
        x = x.detach().requires_grad_()
        margins = margin(model(x), targets)
        if watch is not None:
            watch(step, margins.detach())
        [gradient] = torch.autograd.grad(margins.sum(), x)
        # x_{t+1} = Π(x_t + α sign ∇m)
        x = torch.clamp(x.detach() + size * gradient.sign(), low, high)
    if watch is not None:
        with torch.no_grad():
            watch(steps, margin(model(x), targets))
    model.train(training)
    return x

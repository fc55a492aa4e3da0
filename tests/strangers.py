"""Networks as strangers write them, small: one like Ultralytics', those of transformers, and three awkward ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# --- like Ultralytics' -------------------------------------------------------------------------------------------


class Conv(nn.Module):
    """Convolution, normalisation, activation. All share the one object that is their default."""

    default_act = nn.SiLU()

    def __init__(self, c1: int, c2: int, k: int = 1, s: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = self.default_act if act is True else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.bn(self.conv(x)))
        return out


class Bottleneck(nn.Module):
    """Two convolutions, added to what came in."""

    def __init__(self, c: int, shortcut: bool) -> None:
        super().__init__()
        self.cv1, self.cv2, self.add = Conv(c, c, 3), Conv(c, c, 3), shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.cv2(self.cv1(x)) if self.add else self.cv2(self.cv1(x))
        return out


class C2f(nn.Module):
    """Half of the channels goes through bottlenecks; all that they give goes on."""

    def __init__(self, c1: int, c2: int, n: int = 1, shortcut: bool = False) -> None:
        super().__init__()
        self.c = c2 // 2
        self.cv1, self.cv2 = Conv(c1, 2 * self.c), Conv((2 + n) * self.c, c2)
        self.m = nn.ModuleList(Bottleneck(self.c, shortcut) for _ in range(n))

    def forward(self, x: Tensor) -> Tensor:
        y = list(self.cv1(x).chunk(2, 1))
        y.extend(m(y[-1]) for m in self.m)
        out: Tensor = self.cv2(torch.cat(y, 1))
        return out


class SPPF(nn.Module):
    """Maxima over three windows, by one module that is called three times."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.cv1, self.cv2, self.m = Conv(c, c // 2), Conv(2 * c, c), nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = [self.cv1(x)]
        y.extend(self.m(y[-1]) for _ in range(3))
        out: Tensor = self.cv2(torch.cat(y, 1))
        return out


class Concat(nn.Module):
    """Maps side by side."""

    def forward(self, x: list[Tensor]) -> Tensor:
        return torch.cat(x, 1)


class Detect(nn.Module):
    """Boxes and classes for every pixel of three maps. It writes into the list that it is given, and keeps a grid."""

    def __init__(self, classes: int, channels: Sequence[int], bins: int = 4) -> None:
        super().__init__()
        self.classes, self.bins, self.shape = classes, bins, None
        self.cv2 = nn.ModuleList(nn.Sequential(Conv(c, 16, 3), nn.Conv2d(16, 4 * bins, 1)) for c in channels)
        self.cv3 = nn.ModuleList(nn.Sequential(Conv(c, 16, 3), nn.Conv2d(16, classes, 1)) for c in channels)
        self.dfl = nn.Conv2d(bins, 1, 1, bias=False).requires_grad_(False)
        self.dfl.weight.data[:] = torch.arange(bins, dtype=torch.float).view(1, bins, 1, 1)
        self.grid = torch.empty(0)  # no buffer

    def forward(self, x: list[Tensor]) -> Tensor | list[Tensor]:
        for i in range(len(self.cv2)):
            x[i] = torch.cat((self.cv2[i](x[i]), self.cv3[i](x[i])), 1)
        if self.training:
            return x
        if self.shape != x[0].shape:
            self.grid = torch.cat([torch.arange(y.shape[2] * y.shape[3], dtype=y.dtype) for y in x])
            self.shape = x[0].shape
        flat = torch.cat([y.flatten(2) for y in x], 2)
        box, scores = flat.split((4 * self.bins, self.classes), 1)
        # the expected distance to each side
        n, _, a = box.shape
        sides = self.dfl(box.view(n, 4, self.bins, a).transpose(2, 1).softmax(1)).view(n, 4, a)
        return torch.cat((sides + self.grid, scores.sigmoid()), 1)


class Detector(nn.Module):
    """Layers in a row, each of which says from which others it takes its maps, as a table of such layers makes it."""

    def __init__(self, classes: int = 4, width: int = 8) -> None:
        super().__init__()
        w = width
        rows: list[tuple[int | list[int], nn.Module]] = [
            (-1, Conv(3, w, 3, 2)),
            (-1, Conv(w, 2 * w, 3, 2)),
            (-1, C2f(2 * w, 2 * w, 1, True)),
            (-1, Conv(2 * w, 4 * w, 3, 2)),
            (-1, C2f(4 * w, 4 * w, 2, True)),
            (-1, SPPF(4 * w)),
            (-1, nn.Upsample(None, 2, "nearest")),
            ([-1, 2], Concat()),
            (-1, C2f(6 * w, 2 * w)),
            (-1, Conv(2 * w, 2 * w, 3, 2)),
            ([-1, 5], Concat()),
            (-1, C2f(6 * w, 4 * w)),
            ([8, 11], Detect(classes, (2 * w, 4 * w))),
        ]
        self.model = nn.Sequential(*(layer for _, layer in rows))
        self.source = [source for source, _ in rows]

    def forward(self, x: Tensor) -> Tensor:
        y: list[Tensor] = []
        for source, layer in zip(self.source, self.model, strict=True):
            if source != -1:
                x = y[source] if isinstance(source, int) else [x if j == -1 else y[j] for j in source]  # type: ignore[assignment]
            x = layer(x)
            y.append(x)
        return x


# --- transformers' -----------------------------------------------------------------------------------------------

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
_CONFIGURATIONS = {
    "hf_vit": ("ViTConfig", "AutoModelForImageClassification", SMALL | {"image_size": 32, "patch_size": 8}),
    "hf_bert": ("BertConfig", "AutoModelForSequenceClassification", SMALL | {"vocab_size": 99}),
    "hf_llama": ("LlamaConfig", "AutoModelForCausalLM", SMALL | {"vocab_size": 99, "use_cache": False}),
    "hf_gpt2": (
        "GPT2Config",
        "AutoModelForCausalLM",
        {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 99}
        | {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False},
    ),
}


def _of_transformers(name: str) -> nn.Module:
    """From a configuration: nothing is asked of a hub."""
    import transformers

    kind, head, options = _CONFIGURATIONS[name]
    model: nn.Module = getattr(transformers, head).from_config(getattr(transformers, kind)(**options))
    return model


# --- awkward -----------------------------------------------------------------------------------------------------


class OneBlock(nn.Module):
    """A block that runs at every depth, and a head whose weight is the embedding's, as in ALBERT."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        block = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.blocks = nn.ModuleList([block] * 3)
        self.between, self.hidden, self.head = nn.GELU(), nn.Linear(16, 16), nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, index: Tensor) -> Tensor:
        x = self.embedding(index)
        for block in self.blocks:
            x = x + block(x)
        logits: Tensor = self.head(self.between(self.hidden(x)))
        return logits


class Tables(nn.Module):
    """Activations are functions in a list and in a dictionary, and some are called on channels that lie elsewhere."""

    kinds = {"gate": torch.sigmoid, "unit": F.relu}  # noqa: RUF012, as strangers have it

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(n, m, 3, padding=1) for n, m in ((3, 8), (8, 12), (12, 12)))
        self.activations = [F.relu, F.silu, lambda x: F.relu(x).square()]
        self.gate, self.out = nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        x = x * self.kinds["gate"](self.gate(x.mean((2, 3))))[:, :, None, None]
        tokens = x.flatten(2).transpose(1, 2)
        logits: Tensor = self.out(self.kinds["unit"](self.gate(tokens))).mean(1)
        return logits


class Scales(nn.Module):
    """One tower for a picture of every size, one activation for all its layers, and a pyramid of a length it is told.

    Layers and activation are called several times in a pass, with maps of different sizes; the activation with
    different numbers of channels.
    """

    def __init__(self, scales: int = 3) -> None:
        super().__init__()
        self.scales, act = scales, nn.Hardswish(inplace=True)
        self.tower = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), act, nn.Conv2d(8, 12, 3, padding=1), act)
        self.mix, self.act = nn.Conv2d(12, 12, 1), act
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12 * scales, 5)

    def forward(self, x: Tensor) -> Tensor:
        seen = []
        for _ in range(self.scales):
            y = self.act(self.mix(self.tower(x)))
            seen.append(self.norm(y.mean((2, 3))))
            x = F.avg_pool2d(x, 2)
        logits: Tensor = self.head(torch.cat(seen, -1).view(len(x), -1))
        return logits


#: What makes each, and one example of what it takes.
STRANGERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "like_yolov8": (Detector, lambda: torch.randn(2, 3, 32, 64)),
    **{
        name: (
            lambda name=name: _of_transformers(name),
            (lambda: torch.randn(2, 3, 32, 32)) if name == "hf_vit" else lambda: torch.randint(1, 50, (2, 11)),
        )
        for name in _CONFIGURATIONS
    },
    "one_block": (OneBlock, lambda: torch.randint(0, 50, (2, 7))),
    "tables": (Tables, lambda: torch.randn(2, 3, 8, 8)),
    "scales": (Scales, lambda: torch.randn(2, 3, 16, 16)),
}

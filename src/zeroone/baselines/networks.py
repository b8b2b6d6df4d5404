"""A network of any activation: a convolutional body or none, then fully connected layers."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from zeroone.baselines.activations import ACTIVATIONS
from zeroone.baselines.bodies import make_body
from zeroone.baselines.settings import RivalSettings
from zeroone.counts import walk
from zeroone.operators import Dense
from zeroone.scaling import Scaling


class FloatNetwork(nn.Module):
    """A body or none, then linear layers, each hidden one with its activation.

    ``widths``: inputs, hidden layers, classes. ``image``: the shape of a sample, for a body.
    """

    def __init__(
        self,
        widths: list[int],
        settings: RivalSettings,
        scaling: Scaling,
        image: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.scaling = scaling
        n_in, *hidden, n_classes = widths
        self.n_features = n_in
        activation = ACTIVATIONS[settings.activation]
        self.body, bits = None, False
        if settings.body is not None:
            in_body = activation if settings.body_activation == "own" else ACTIVATIONS["relu"]
            self.body = make_body(settings.body, image, in_body)
            walked = walk(self.body, n_in)
            n_in, bits = walked.n_features, walked.bits
        self.layers = nn.ModuleList(
            nn.Linear(*pair) for pair in pairwise([n_in, *hidden, n_classes])
        )
        norm = nn.BatchNorm1d if settings.batch_norm else nn.Identity
        self.norms = nn.ModuleList(norm(width) for width in hidden)
        self.activations = nn.ModuleList(activation(width) for width in hidden)
        self.takes_bits = [bits, *(activation.one_bit for _ in hidden)]

    def forward(self, V: Tensor) -> Tensor:
        """The scores of scaled inputs."""
        if self.body is not None:
            V = self.body(V)
        *hidden, top = self.layers
        for layer, norm, activate in zip(hidden, self.norms, self.activations, strict=True):
            V = activate(norm(layer(V)))
        scores: Tensor = top(V)
        return scores

    @property
    def operators(self) -> list[Dense]:
        """Copies of the fully connected layers, as they are counted."""
        return [_dense(layer) for layer in self.layers if isinstance(layer, nn.Linear)]


def _dense(layer: nn.Linear) -> Dense:
    weight = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()
    return Dense(weight, layer.in_features, bias=True)

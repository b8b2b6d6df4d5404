"""What a trained body makes of the data: the inputs of the layers that are trained on it."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from zeroone.nn.backbones import Backbone
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling


@dataclass(frozen=True)
class Features:
    """A network with a trained body, and what the body made of the training and test inputs."""

    network: Network
    train: NDArray[Any]
    test: NDArray[Any] | None
    record: dict[str, Any]  # of the initial process that trained it

    @property
    def summary(self) -> dict[str, Any]:
        """What the record of a run on them says of the initial process."""
        return {name: self.record[name] for name in ("settings", "seed", "n_iter", "result")}

    @property
    def scaling(self) -> Scaling:
        """Of the raw inputs."""
        return self.network.scaling

    def body(self, scaling: Scaling) -> Backbone:
        """The body as part of a network that was trained with this scaling of the features."""
        body = self.network.body
        assert body is not None
        return Backbone(body.name, body.image, body.layers, scaling)

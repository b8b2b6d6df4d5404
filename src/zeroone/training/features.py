"""Features: the outputs of a trained backbone, on which 0/1 layers are trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from zeroone.nn.backbones import Backbone
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling


@dataclass(frozen=True)
class Features:
    """A network with a trained backbone, and the backbone's outputs for all inputs."""

    network: Network
    train: NDArray[Any]
    test: NDArray[Any] | None
    record: dict[str, Any]  # of the pretraining
    views: Sequence[NDArray[Any]] = ()  # of augmented versions of the training inputs

    @property
    def summary(self) -> dict[str, Any]:
        """What the record of a run on these features says about the pretraining."""
        summary = {name: self.record[name] for name in ("settings", "seed", "n_iter", "result")}
        return summary | ({"views": len(self.views)} if self.views else {})

    def backbone(self, scaling: Scaling) -> Backbone:
        """Return the backbone, for a network whose layers take features with this scaling."""
        backbone = self.network.backbone
        assert backbone is not None
        return Backbone(backbone.name, backbone.image, backbone.layers, scaling)

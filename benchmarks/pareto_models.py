"""The networks of ``zeroone bench pareto``: ours and ReLU networks, trained once and kept.

Both learn from the same 90% of the training samples; what is chosen is chosen on the other 10%.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bench_inference import make_layers, relu_as_onnx
from zeroone import IntegerModel, TrainSettings, load, quantise, train
from zeroone.data.registry import REGISTRY

HELD_OUT = 0.1
FORMS = {  # of ours: units and thresholds of each hidden layer; the share of weights other than 0
    "24x8-24x4": 0.2,
    "32x8-32x4": 0.2,
    "48x8-32x8": 0.15,
    "64x8-48x4": 0.15,
    "96x8-48x8": 0.15,
    "128x8-64x4": 0.15,
    "160x8-64x4": 0.12,
    "192x8-64x4": 0.1,
    "192x8-64x8": 0.12,
    "256x8-96x8": 0.1,
    "384x8-96x4": 0.06,
}
# Chosen on the held-out part of MNIST: with ternary weights, steps of 0.16 are better than the
# default; units with many thresholds have smaller files and less error than many units with one.
SETTINGS = {"weights": "ternary", "move": 0.16, "input_dropout": 0.1}
# The upper bits of a pixel in use: the fewest that cost little on the held-out part.
INPUT_BITS = {"mnist": 2, "fashion-mnist": 4}
RELU = (16, 32, 48, 64, 96, 128, 256)  # both hidden layers
DROPOUTS = (0.0, 0.2)  # of inputs; the better one is taken
SHARE, TUNING = 0.25, 5  # of pruned networks: what stays; epochs after it, or with rounded weights


@dataclass(frozen=True)
class Part:
    """Samples as bytes, and labels."""

    X: NDArray[np.uint8]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Data:
    """A data set: to learn from, to choose by, to report."""

    fitted: Part
    held_out: Part
    test: Part

    @staticmethod
    def of(name: str) -> "Data":
        split = REGISTRY[name].get()
        X, y = np.asarray(split.X, np.uint8), np.asarray(split.y, np.int64)
        order = np.random.default_rng(0).permutation(len(X))
        few, many = np.split(order, [int(HELD_OUT * len(X))])
        test = Part(np.ascontiguousarray(split.test[0], np.uint8), np.asarray(split.test[1]))
        return Data(Part(X[many], y[many]), Part(X[few], y[few]), test)


def our_form(name: str, density: float) -> dict[str, Any]:
    """Return the settings of one of our networks; '16x8-8x4' has 16 units of 8 thresholds first."""
    hidden = tuple(layer.replace("x", ":bits") for layer in name.split("-"))
    return SETTINGS | {"hidden": hidden, "density": density}


def our_forms(data: str) -> dict[str, dict[str, Any]]:
    """Return the settings of our networks by name."""
    bits = {"input_bits": INPUT_BITS[data]}
    return {name: our_form(name, density) | bits for name, density in FORMS.items()}


def our_model(name: str, form: dict[str, Any], data: Data, folder: Path, epochs: int) -> Path:
    """Return the file of one of our networks in integers, trained now if it is not there."""
    digest = zlib.crc32(json.dumps(form).encode())
    path = folder / f"{name} {digest:08x}.safetensors"
    if not path.is_file():
        options = form | {"epochs": epochs}
        settings = TrainSettings.from_options(**options)
        network = train(data.fitted.X, data.fitted.y, settings, scores=False).network
        IntegerModel(quantise(network)).save(path)
    return path


def widths_of(hidden: int) -> list[int]:
    return [784, hidden, hidden, 10]


class Rounded(nn.Module):
    """A ReLU network whose weights and activations are rounded to 8 bits as it learns."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers, self.most = layers, [1.0] * len(layers)

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            if isinstance(layer, nn.Linear):
                unit = layer.weight.detach().abs().max() / 127
                x = functional.linear(x, _rounded(layer.weight, unit), layer.bias)
            else:
                x = layer(x)
                self.most[i] += 0.01 * (float(x.detach().max()) - self.most[i])
                x = _rounded(x.clamp(max=self.most[i]), torch.tensor(self.most[i] / 255))
        return x


def _rounded(x: Tensor, unit: Tensor) -> Tensor:
    return x + ((x / unit).round() * unit - x).detach()


def fit(model: nn.Module, part: Part, epochs: int, rate: float, dropout: float, seed: int) -> None:
    """Adam with a falling rate and smoothed labels."""
    torch.manual_seed(seed)
    X, y = torch.from_numpy(part.X), torch.from_numpy(part.y)
    adam, batch = torch.optim.Adam(model.parameters(), lr=rate), 128
    steps = epochs * (len(X) // batch)
    falling = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / (steps + 1))
    for _ in range(epochs):
        for some in torch.randperm(len(X))[: len(X) // batch * batch].split(batch):
            x = functional.dropout(X[some].float() / 255, dropout) * (1 - dropout)
            loss = functional.cross_entropy(model(x), y[some], label_smoothing=0.1)
            adam.zero_grad()
            loss.backward()
            adam.step()
            falling.step()


def error_of(layers: nn.Sequential, part: Part) -> float:
    with torch.inference_mode():
        scores = layers(torch.from_numpy(part.X).float() / 255)
    return float((scores.argmax(1).numpy() != part.y).mean())


def pruned(layers: nn.Sequential, part: Part) -> nn.Sequential:
    """Keep the hidden units that send most on, SHARE of each layer."""
    x = torch.from_numpy(part.X[:5000]).float() / 255
    found, chosen = [m for m in layers if isinstance(m, nn.Linear)], torch.arange(x.shape[1])
    small = make_layers([784, *(int(SHARE * m.out_features) for m in found[:-1]), 10])
    with torch.no_grad():
        for i, (old, new) in enumerate(
            zip(found, (m for m in small if isinstance(m, nn.Linear)), strict=True)
        ):
            kept = torch.arange(old.out_features)
            x = functional.relu(old(x))
            if i < len(found) - 1:
                sent = x.square().mean(0) * found[i + 1].weight.square().sum(0)
                kept = sent.topk(new.out_features).indices.sort().values
            new.weight.copy_(old.weight[kept][:, chosen])
            new.bias.copy_(old.bias[kept])
            chosen = kept
    return small


def relu_variants(hidden: int, data: Data, epochs: int) -> Iterator[tuple[str, nn.Sequential]]:
    """Train a ReLU network: plainly, pruned from a wider one, and each rounded as it learns."""
    tried = []
    for dropout in DROPOUTS:
        torch.manual_seed(0)
        layers = make_layers(widths_of(hidden))
        fit(layers, data.fitted, epochs, 1e-3, dropout, seed=1)
        tried.append((error_of(layers, data.held_out), dropout, layers))
    _, dropout, layers = min(tried, key=lambda one: one[0])
    yield "plain", layers
    torch.manual_seed(0)
    wide = make_layers(widths_of(int(hidden / SHARE)))
    fit(wide, data.fitted, epochs - TUNING, 1e-3, dropout, seed=1)
    small = pruned(wide, data.fitted)
    fit(small, data.fitted, TUNING, 5e-4, dropout, seed=2)
    yield "pruned", small
    for name, done in (("plain", layers), ("pruned", small)):
        again = make_layers(widths_of(hidden))
        again.load_state_dict(done.state_dict())
        fit(Rounded(again), data.fitted, TUNING, 3e-4, dropout, seed=3)
        yield f"{name}, rounded", again


def relu_models(hidden: int, data: Data, folder: Path, epochs: int) -> dict[str, nn.Sequential]:
    """Return all variants of a width, trained now if they are not there."""
    path = folder / f"relu {hidden}.pt"
    if not path.is_file():
        found = {name: layers.state_dict() for name, layers in relu_variants(hidden, data, epochs)}
        torch.save(found, path)
    models = {}
    for name, state in torch.load(path, weights_only=True).items():
        models[name] = make_layers(widths_of(hidden)).eval()
        models[name].load_state_dict(state)
    return models


class _Calibration:
    """Batches of samples for ONNX Runtime's quantisation."""

    def __init__(self, X: NDArray[np.uint8]) -> None:
        self._batches = iter(np.array_split(X.astype(np.float32) / 255, 10))

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self._batches, None)
        return None if batch is None else {"inputs": batch}


def as_int8(layers: nn.Sequential, part: Part, folder: Path) -> bytes:
    """Quantise a ReLU network statically; the result takes bytes, as ours does."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    source, made = folder / "float.onnx", folder / "int8.onnx"
    source.write_bytes(relu_as_onnx(layers))
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    reader = _Calibration(part.X[:2000])
    quantize_static(str(source), str(made), reader, quant_format=QuantFormat.QDQ, **types)
    model = onnx.load(str(made))
    first = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
    numbers = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    scale, zero = numbers[first.input[1]], numbers[first.input[2]]
    if first.input[0] == "inputs" and abs(float(scale) * 255 - 1) < 1e-4 and int(zero) == 0:
        for node in model.graph.node:  # bytes are what it would round to
            node.input[:] = ["inputs" if x == first.output[0] else x for x in node.input]
        model.graph.node.remove(first)
        model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    content: bytes = model.SerializeToString()
    return content


def prepare(name: str, folder: Path, epochs: int) -> None:
    """Train everything for a data set."""
    data = Data.of(name)
    folder.mkdir(parents=True, exist_ok=True)
    for model, form in our_forms(name).items():
        our_model(model, form, data, folder, epochs)
        print(f"{name}: {model}", flush=True)
    for hidden in RELU:
        relu_models(hidden, data, folder, epochs)
        print(f"{name}: ReLU {hidden}", flush=True)


def read_ours(path: Path) -> IntegerModel:
    model = load(path)
    assert isinstance(model, IntegerModel)
    return model

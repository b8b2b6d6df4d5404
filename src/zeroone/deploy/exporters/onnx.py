"""Export to ONNX: MatMulInteger, ConvInteger and Greater give the same scores to the bit."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from zeroone.deploy.exporters import register_exporter
from zeroone.deploy.integer_form import Inputs, IntegerNetwork, Map, Stage
from zeroone.utils.checks import need_extra
from zeroone.utils.storage import replacing
from zeroone.version import __version__

OPSET = 17
IR_VERSION = 8  # of ONNX 1.12, which introduced this opset


@register_exporter("onnx", suffix=".onnx")
def write_onnx(network: IntegerNetwork, path: Path) -> list[str]:
    """Write a checked model that maps ``inputs`` to int32 ``scores`` and the index ``class``."""
    model = make_model(network)
    need_extra("onnx", "onnx").checker.check_model(model, full_check=True)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    kind = "uint8" if network.inputs.are_bytes else "float32"
    return [
        f"{path}: ONNX, opset {OPSET}, {path.stat().st_size:,} bytes",
        f"input: inputs, {kind}, (samples, {network.n_features}); outputs: scores, int32, "
        f"(samples, {len(network.classes)}), and class, int64, (samples)",
    ]


def make_model(network: IntegerNetwork) -> Any:
    """Build the ONNX model of a network."""
    graph = _Graph()
    V, below, units = graph.as_bytes(network.inputs), "", 1
    for stage, above in pairwise(network.stages):
        total = graph.sums(stage, V, below, units)
        V, units = graph.bits(stage, total), stage.main.n_out
        below = graph.largest(total, stage) if above.stream else ""
    last = network.stages[-1]
    scores = graph.map(last.main, V)
    graph.add("Add", scores, graph.constant(last.thresholds), output="scores")
    graph.add("ArgMax", "scores", output="class", axis=1, keepdims=0)
    helper, types = graph.onnx.helper, graph.onnx.TensorProto
    kind = types.UINT8 if network.inputs.are_bytes else types.FLOAT
    inputs = helper.make_tensor_value_info("inputs", kind, ["samples", network.n_features])
    outputs = [
        helper.make_tensor_value_info("scores", types.INT32, ["samples", len(network.classes)]),
        helper.make_tensor_value_info("class", types.INT64, ["samples"]),
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "zeroone", [inputs], outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="zeroone",
        producer_version=__version__,
    )
    about = {"classes": network.classes, "unit": network.unit, "head": network.head.describe()}
    if network.feature_names is not None:
        about["features"] = network.feature_names
    helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model


class _Graph:
    """A graph under construction; methods add nodes and return the name of their output."""

    def __init__(self) -> None:
        self.onnx = need_extra("onnx", "onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"constant{len(self.constants)}"
        array = np.array(value, dtype=dtype, order="C")
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def reshape(self, name: str, *shape: int) -> str:
        return self.add("Reshape", name, self.constant([-1, *shape], np.int64))

    def as_bytes(self, inputs: Inputs) -> str:
        raw = "inputs"
        if inputs.taken is not None:
            raw = self.add("Gather", raw, self.constant(inputs.taken), axis=1)
        if inputs.are_bytes and inputs.shift:
            shift = self.constant(inputs.shift, np.uint8)
            return self.add("BitShift", raw, shift, direction="RIGHT")
        if inputs.are_bytes:
            return raw
        moved = self.add("Sub", raw, self.constant(inputs.low))
        scaled = self.add("Mul", moved, self.constant(inputs.rate))
        half = self.add("Add", scaled, self.constant(0.5, np.float32))
        bounds = (self.constant(bound, np.float32) for bound in (0, 255))
        clipped = self.add("Clip", self.add("Floor", half), *bounds)
        return self.add("Cast", clipped, to=self.onnx.TensorProto.UINT8)

    def map(self, linear: Map, V: str) -> str:
        if not linear.kernel:
            flat = self.reshape(V, linear.n_inputs)
            return self.add("MatMulInteger", flat, self.constant(linear.weights.T))
        images, k = self.reshape(V, *linear.shape_in), linear.kernel
        return self.add(
            "ConvInteger",
            images,
            self.constant(linear.weights.reshape(linear.n_out, linear.shape_in[0], k, k)),
            kernel_shape=[k] * 2,
            strides=[linear.stride] * 2,
            pads=[linear.padding] * 4,
        )

    def sums(self, stage: Stage, V: str, below: str, units: int) -> str:
        total = self.map(stage.main, V)
        if not stage.stream:
            return total
        times = [1, stage.main.n_out // units, *[1] * (len(stage.main.shape_out) - 1)]
        return self.add("Add", total, self.add("Tile", below, self.constant(times, np.int64)))

    def largest(self, total: str, stage: Stage) -> str:
        """Pool sums, which are integers of 32 bits; ONNX has no MaxPool for them."""
        if stage.pool == "none":
            return total
        windows = self.windows(total, stage)
        return self.add("ReduceMax", windows, axes=[3, 5], keepdims=0)

    def bits(self, stage: Stage, total: str) -> str:
        window = [stage.window] * 2
        if stage.pool == "average":
            total = self.window_sums(total, stage)
        several = stage.bits_each > 1
        if several:
            total = self.reshape(total, 1, stage.main.n_out, *stage.compared[1:])
        limits = self.constant(stage.limits if several else stage.limits[0])
        bits = self.add("Cast", self.add("Greater", total, limits), to=self.onnx.TensorProto.UINT8)
        if several:
            bits = self.reshape(bits, *stage.compared)
        if stage.pool != "max":
            return bits
        return self.add("MaxPool", bits, kernel_shape=window, strides=window)

    def window_sums(self, total: str, stage: Stage) -> str:
        windows = self.windows(total, stage)
        return self.add("ReduceSum", windows, self.constant([3, 5], np.int64), keepdims=0)

    def windows(self, total: str, stage: Stage) -> str:
        """Put the entries of each window along axes 3 and 5."""
        units, (h, w), k = stage.main.n_out, stage.shape_out[1:], stage.window
        bounds = (self.constant(pair, np.int64) for pair in ([0, 0], [h * k, w * k], [2, 3]))
        return self.reshape(self.add("Slice", total, *bounds), units, h, k, w, k)

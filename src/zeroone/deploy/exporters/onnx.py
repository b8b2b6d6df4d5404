"""The integer form as an ONNX model: MatMulInteger, ConvInteger, Greater; the same to the bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.integer_form import Inputs, IntegerNetwork, Map, Stage
from zeroone.utils.storage import replacing
from zeroone.version import __version__

OPSET = 17
IR_VERSION = 8  # of ONNX 1.12, which has this opset


class _Graph:
    """Nodes and constants so far; names are made up as they are needed."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        output = output or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def shaped(self, name: str, *shape: int) -> str:
        return self.add("Reshape", name, self.constant(np.array([-1, *shape], dtype=np.int64)))


def write_onnx(network: IntegerNetwork, path: Path) -> Path:
    """Write a checked model: any number of ``inputs``, int32 ``scores``, and the ``class``."""
    import onnx

    model = make_model(network)
    onnx.checker.check_model(model, full_check=True)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return path


def make_model(network: IntegerNetwork) -> Any:
    """The model, not yet written."""
    from onnx import TensorProto, helper

    graph = _Graph()
    V = [_as_bytes(graph, network.inputs)]
    for stage in network.stages[:-1]:
        V.append(_bits(graph, stage, V))
    last = network.stages[-1]
    graph.add("Add", _sums(graph, last, V), graph.constant(last.thresholds), output="scores")
    graph.add("ArgMax", "scores", output="class", axis=1, keepdims=0)
    kind = TensorProto.UINT8 if network.inputs.are_bytes else TensorProto.FLOAT
    made = helper.make_graph(
        graph.nodes,
        "zeroone",
        [helper.make_tensor_value_info("inputs", kind, ["samples", network.n_features])],
        [
            helper.make_tensor_value_info(
                "scores", TensorProto.INT32, ["samples", len(network.classes)]
            ),
            helper.make_tensor_value_info("class", TensorProto.INT64, ["samples"]),
        ],
        graph.constants,
    )
    model = helper.make_model(
        made,
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


def _as_bytes(graph: _Graph, inputs: Inputs) -> str:
    from onnx import TensorProto

    raw = "inputs"
    if inputs.taken is not None:
        raw = graph.add("Gather", raw, graph.constant(inputs.taken), axis=1)
    if inputs.low is None or inputs.rate is None:
        return raw
    moved = graph.add("Sub", raw, graph.constant(inputs.low))
    scaled = graph.add("Mul", moved, graph.constant(inputs.rate))
    half = graph.add("Add", scaled, graph.constant(np.array(0.5, dtype=np.float32)))
    limits = (graph.constant(np.array(limit, dtype=np.float32)) for limit in (0, 255))
    cut = graph.add("Clip", graph.add("Floor", half), *limits)
    return graph.add("Cast", cut, to=TensorProto.UINT8)


def _sums(graph: _Graph, stage: Stage, V: list[str]) -> str:
    total = _map(graph, stage.main, V[-1])
    if stage.shortcut is None:
        return total
    return graph.add("Add", total, _map(graph, stage.shortcut, V[-stage.skip]))


def _map(graph: _Graph, linear: Map, V: str) -> str:
    if not linear.kernel:
        flat = graph.shaped(V, linear.weights.shape[1])
        return graph.add("MatMulInteger", flat, graph.constant(linear.weights.T))
    images = graph.shaped(V, *linear.shape_in)
    kernels = linear.weights.reshape(linear.n_out, linear.shape_in[0], linear.kernel, linear.kernel)
    return graph.add(
        "ConvInteger",
        images,
        graph.constant(kernels),
        kernel_shape=[linear.kernel] * 2,
        strides=[linear.stride] * 2,
        pads=[linear.padding] * 4,
    )


def _bits(graph: _Graph, stage: Stage, V: list[str]) -> str:
    from onnx import TensorProto

    total, limits = _sums(graph, stage, V), stage.thresholds
    if stage.pool == "average":
        total = _window_sums(graph, total, stage)
    if limits.ndim == 1 and len(stage.compared) == 3:
        limits = limits[:, None, None]
    bits = graph.add(
        "Cast", graph.add("Greater", total, graph.constant(limits)), to=TensorProto.UINT8
    )
    if stage.pool != "max":
        return bits
    return graph.add("MaxPool", bits, kernel_shape=[stage.window] * 2, strides=[stage.window] * 2)


def _window_sums(graph: _Graph, total: str, stage: Stage) -> str:
    """The sums of windows side by side."""
    units, height, width = stage.main.shape_out
    k = stage.window
    h, w = height // k, width // k
    ends = graph.constant(np.array([h * k, w * k], dtype=np.int64))
    starts, axes = (graph.constant(np.array(pair, dtype=np.int64)) for pair in ([0, 0], [2, 3]))
    cropped = graph.add("Slice", total, starts, ends, axes)
    windows = graph.shaped(cropped, units, h, k, w, k)
    inner = graph.constant(np.array([3, 5], dtype=np.int64))
    return graph.add("ReduceSum", windows, inner, keepdims=0)

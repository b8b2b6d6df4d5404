"""One convolution of bits with ternary weights beside ONNX Runtime's int8 convolution.

    python benchmarks/conv_kernel.py --json results/conv_kernel.json

Both have 128 filters of 3 x 3 on 128 channels of 16 x 16 pixels, padded by 1, and run on one
thread, one image at a time, in turns of CALLS calls. Ours takes packed bits and gives packed bits.
ONNX Runtime takes and gives bytes, in each of the forms that it knows: QLinearConv, the operators
of a network that was quantised statically (QDQ), and QLinearConv with the channels last, as it runs
it within a network of several convolutions.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.bench_inference import describe_kernels
from benchmarks.measure import begin, finish, interleaved, parser
from zeroone.deploy import IntegerNetwork
from zeroone.deploy.build import kernels
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.deploy.kernel import KernelNetwork, aligned
from zeroone.deploy.runtime import open_session
from zeroone.nn.heads import SoftmaxCE

Call = Callable[[], Any]
OURS = "0/1 kernel, ternary"
CALLS = 20


def make_network(channels: int, side: int, rng: np.random.Generator) -> IntegerNetwork:
    """Make a network whose second layer is the convolution."""
    image, shape = (1, side, side), (channels, side, side)
    n = math.prod(shape)
    maps = [
        Map(rng.integers(-64, 65, (channels, 9)).astype(np.int8), image, 3, 1, 1),
        Map(rng.integers(-1, 2, (channels, 9 * channels)).astype(np.int8), shape, 3, 1, 1),
        Map(rng.integers(-9, 10, (10, n)).astype(np.int8), (n,)),
    ]
    stages = [Stage(one, np.zeros(one.n_out, np.int32)) for one in maps]
    return IntegerNetwork(Inputs(side**2), stages, list(range(10)), SoftmaxCE())


def our_convolution(network: IntegerNetwork, rng: np.random.Generator) -> Call:
    """Return a function that runs the second layer alone, on packed bits."""
    made = KernelNetwork(network, kernels().library)
    layer = made._layers[1:2].copy()
    words = int(layer["depth"][0] * layer["height"][0] * layer["width"][0] * layer["pixel"][0])
    about = made._about.copy()
    alone = {"layers": layer.ctypes.data, "taken": 0, "slices": 0, "n_layers": 1, "most": 1}
    for name, value in (alone | {"features": words, "inputs": words, "classes": 1}).items():
        about[name] = value
    memory = np.empty(made.library.memory_bytes(about.ctypes.data, 1), np.uint8)
    image = aligned(rng.integers(0, 256, words).astype(np.uint8))
    arrays = (about, image, memory, layer)
    where, bits, room = (array.ctypes.data for array in arrays[:3])

    def call() -> Any:
        return arrays and made.library.run_network(where, bits, 1, room, None, None)

    return call


def their_models(channels: int, side: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return ONNX models of the convolution, by name."""
    from onnx import TensorProto, helper, numpy_helper

    def constant(name: str, value: Any, kind: Any) -> Any:
        return numpy_helper.from_array(np.asarray(value, kind), name)

    weights = rng.integers(-127, 128, (channels, channels, 3, 3))
    scales = [("x", 0.01, np.float32), ("x0", 0, np.uint8), ("w", 0.01, np.float32)]
    scales += [("w0", 0, np.int8), ("y", 0.5, np.float32), ("y0", 0, np.uint8)]
    numbers = [constant(*one) for one in scales]
    numbers += [constant("W", weights, np.int8)]
    bias = constant("b", rng.integers(-999, 1000, channels), np.int32)
    takes = ["in", "x", "x0", "W", "w", "w0", "y", "y0", "b"]
    geometry: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4}
    plain = helper.make_node("QLinearConv", takes, ["out"], **geometry)
    last = helper.make_node(
        "QLinearConv", takes, ["out"], domain="com.microsoft", channels_last=1, **geometry
    )
    qdq = [
        helper.make_node("DequantizeLinear", ["in", "x", "x0"], ["a"]),
        helper.make_node("DequantizeLinear", ["W", "w", "w0"], ["c"]),
        helper.make_node("DequantizeLinear", ["b", "xw"], ["d"]),
        helper.make_node("Conv", ["a", "c", "d"], ["e"], **geometry),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "y", "y0"], ["out"]),
    ]
    more = [constant("xw", 1e-4, np.float32)]
    first, end = [1, channels, side, side], [1, side, side, channels]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    models = {}
    for name, nodes, shape, extra in (
        ("QLinearConv", [plain], first, []),
        ("QDQ", qdq, first, more),
        ("QLinearConv, channels last", [last], end, []),
    ):
        value = helper.make_tensor_value_info("in", TensorProto.UINT8, shape)
        result = helper.make_tensor_value_info("out", TensorProto.UINT8, shape)
        graph = helper.make_graph(nodes, "conv", [value], [result], [*numbers, bias, *extra])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        models[name] = (model.SerializeToString(), shape)
    return models


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=501, threads=1)
    arguments.add_argument("--channels", type=int, default=128)
    arguments.add_argument("--side", type=int, default=16)
    options = arguments.parse_args()
    record = begin("conv kernel", options) | {"kernels": describe_kernels()}
    if kernels().library is None:
        print(record["kernels"])
        finish(record, options.json)
        return
    rng = np.random.default_rng(0)
    network = make_network(options.channels, options.side, rng)
    X = rng.integers(0, 256, (3, options.side**2)).astype(np.uint8)
    found = KernelNetwork(network, kernels().library).scores(X)
    record["exact"] = bool(np.array_equal(found, network.scores(X)))
    calls: dict[str, Call] = {OURS: our_convolution(network, rng)}
    for name, (content, shape) in their_models(options.channels, options.side, rng).items():
        image = {"in": rng.integers(0, 256, shape).astype(np.uint8)}
        calls[name] = partial(open_session(content, 1, spin=False).run, None, image)

    def several(call: Call) -> None:
        for _ in range(CALLS):
            call()

    turns = interleaved(
        {name: partial(several, call) for name, call in calls.items()}, options.repeats
    )
    times = {name: np.array(one["all"]) / CALLS for name, one in turns.items()}
    rows: dict[str, Any] = {}
    for name, taken in times.items():
        low, median, high = np.quantile(taken / times[OURS], [0.25, 0.5, 0.75])
        ratio = {"low": float(low), "median": float(median), "high": float(high)}
        rows[name] = {"us": 1e6 * float(np.median(taken)), "least_us": 1e6 * float(taken.min())}
        rows[name] |= {"times_ours": ratio, "least_of_ours": taken.min() / times[OURS].min()}
        print(f"{name}: {rows[name]['us']:.1f} us (least {rows[name]['least_us']:.1f}), ", end="")
        print(f"{median:.2f} times ours ({low:.2f}-{high:.2f})")
    record["result"] = rows
    print(f"the scores of a network with it are {'exact' if record['exact'] else 'WRONG'}")
    finish(record, options.json)


if __name__ == "__main__":
    main()

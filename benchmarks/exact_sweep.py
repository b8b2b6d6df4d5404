"""The cost of a sweep of Algorithm 3 against the matrix products that it cannot avoid.

For operator i with input V (n x d_in) and output U (n x d_out) these are V W^T (the start of the U
block), R^T V and V^T V (all that the W block needs; V^T V only once where V is the input), and in
the V block S W^T and the product of its residual with the gain. They are timed on matrices of the
same shapes, in the same blocks of rows. Memory is the growth of the peak resident set.
"""

import multiprocessing
import resource
from itertools import pairwise

import torch

from benchmarks.measure import begin, finish, interleaved, parser
from zeroone.exact.blocks import row_blocks
from zeroone.exact.solver import ExactBCD, ExactSettings
from zeroone.nn.functional import step
from zeroone.nn.heads import HardmaxMSE
from zeroone.nn.network import Network


def make_solver(n, widths):
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(n, widths[0], generator=rng)
    y = torch.randint(0, widths[-1], (n,), generator=rng)
    n_in, *hidden, n_classes = widths
    network = Network.build((n_in,), hidden, n_classes, HardmaxMSE(1.0), std=0.01, bias=False)
    return ExactBCD(network, X, y, ExactSettings(pgm_steps=1))


def products(n, widths):
    """Return a function that computes the products of a sweep, and nothing else."""
    rng = torch.Generator().manual_seed(1)
    V = [step(torch.randn(n, d, generator=rng)) for d in widths[:-1]]
    U = [torch.randn(n, d, generator=rng) for d in widths[1:]]
    W = [torch.randn(o, i, generator=rng) for i, o in pairwise(widths)]
    gain = [w.T.contiguous() for w in W]

    def run():
        for i in range(len(W)):
            cross, gram = torch.zeros_like(W[i]), torch.zeros(W[i].shape[1], W[i].shape[1])
            for rows in row_blocks(n):
                v, u = V[i][rows], U[i][rows]
                v @ W[i].T
                cross.addmm_(u.T, v)
                if i:
                    gram.addmm_(v.T, v)
                    v @ W[i].T
                    u @ gain[i].T

    return run


def peak_memory(n, widths, answer):
    """Measure, in a separate process, how much the data and two sweeps add to the peak."""
    torch.set_num_threads(2)
    make_solver(200, [20, 20, 20, 5]).sweep()  # allocates the buffers of the libraries
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    solver = make_solver(n, widths)
    for _ in range(2):
        solver.sweep()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    blocks = sum(t.numel() * t.element_size() for t in (*solver.U, *solver.V))
    answer.put({"peak_bytes": 1024 * (peak - before), "blocks_bytes": blocks})


def measure_memory(n, widths):
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=peak_memory, args=(n, widths, answer))
    process.start()
    memory = answer.get()
    process.join()
    return {**memory, "ratio": memory["peak_bytes"] / memory["blocks_bytes"]}


def main():
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=20_000)
    arguments.add_argument("--widths", default="784,1000,1000,10")
    options = arguments.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    record = begin("exact_sweep", options)
    memory = measure_memory(options.samples, widths)
    solver = make_solver(options.samples, widths)
    tasks = {"sweep": solver.sweep, "products": products(options.samples, widths)}
    times = interleaved(tasks, options.repeats)
    ratio = times["sweep"]["median"] / times["products"]["median"]
    record["result"] = {"seconds": times, "ratio": ratio, "memory": memory}
    print(
        f"sweep {times['sweep']['median']:.2f} s, unavoidable products "
        f"{times['products']['median']:.2f} s, ratio {ratio:.2f}"
    )
    print(
        f"peak memory {memory['peak_bytes'] / 1e6:.0f} MB, X, U and V "
        f"{memory['blocks_bytes'] / 1e6:.0f} MB, ratio {memory['ratio']:.2f}"
    )
    finish(record, options.json)


if __name__ == "__main__":
    main()

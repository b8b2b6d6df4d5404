"""The V block: one factorisation against batched conjugate gradients to 1e-6 (erratum E10).

Conjugate gradients run in two forms: with products with W and W^T in each iteration, and with one
product with W^T W, formed beforehand. The ratio is to the faster of the two.
"""

import torch

from benchmarks.measure import begin, finish, interleaved, parser
from zeroone.exact.blocks import (
    conjugate_gradients,
    damped_gain,
    row_blocks,
    v_step,
    v_step_cg,
)
from zeroone.nn.functional import step
from zeroone.nn.operators import Operator

TAU, PI, STD, TOL = 1e-6, 1e-7, 0.01, 1e-6  # printed; the spread of W is ours


def relative_residual(V, U, S, op):
    """Return the worst relative residual of (W^T W + pi/tau I) D = W^T R, in float64."""
    W, D = op.linear.double(), (V.double() - S.double())
    rhs = (U.double() - S.double() @ W.T) @ W
    residual = rhs - (D @ W.T) @ W - PI / TAU * D
    return float((residual.norm(dim=1) / rhs.norm(dim=1)).max())


def measure(n, d, dtype, repeats):
    rng = torch.Generator().manual_seed(0)
    weight = torch.empty(d, d, dtype=dtype).normal_(std=STD, generator=rng)
    op = Operator(weight, d)
    S = step(torch.randn(n, d, generator=rng, dtype=dtype))
    U = op.apply(S) + 0.1 * torch.randn(n, d, generator=rng, dtype=dtype)
    V = {name: torch.empty_like(S) for name in ("factor", "cg", "cg, W^T W formed")}

    def factor():
        gain = damped_gain(op.linear, PI / TAU)
        for rows in row_blocks(n):
            V["factor"][rows] = v_step(U[rows], S[rows], op, gain)

    def cg():
        for rows in row_blocks(n):
            V["cg"][rows] = v_step_cg(U[rows], S[rows], op, PI / TAU, tol=TOL)

    def cg_formed():
        normal = op.linear.T @ op.linear
        normal.diagonal().add_(PI / TAU)
        for rows in row_blocks(n):
            rhs = op.adjoint(U[rows] - op.apply(S[rows]))
            D = conjugate_gradients(lambda x: x @ normal, rhs, tol=TOL, max_iter=1000)
            V["cg, W^T W formed"][rows] = S[rows] + D

    tasks = {"factor": factor, "cg": cg, "cg, W^T W formed": cg_formed}
    times = interleaved(tasks, repeats)
    fastest_cg = min(times[name]["median"] for name in tasks if name != "factor")
    return {
        "seconds": times,
        "ratio": fastest_cg / times["factor"]["median"],
        "relative_residual": {name: relative_residual(v, U, S, op) for name, v in V.items()},
    }


def main():
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=10_000)
    arguments.add_argument("--width", type=int, default=1000)
    options = arguments.parse_args()
    record = begin("v_step", options)
    record["result"] = {}
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        result = measure(options.samples, options.width, dtype, options.repeats)
        record["result"][name] = result
        for way, seconds in result["seconds"].items():
            residual = result["relative_residual"][way]
            print(f"{name} {way:17} {seconds['median']:6.3f} s, relative residual {residual:.1e}")
        print(f"{name} factorisation is {result['ratio']:.1f}x faster than the faster CG")
    finish(record, options.json)


if __name__ == "__main__":
    main()

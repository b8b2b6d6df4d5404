"""Does a W step lower its batch's own sub-problem? The condition, measured while training.

A step of size c in the metric M lowers ||E - V X^T||^2 of the batch if c times the largest
eigenvalue of M^-1 V^T V/n is below 2 (docs/stochastic.md). It is taken every tenth batch of two
epochs on 20,000 images of MNIST, for the hidden layers.
"""

import torch
from zeroone.solvers.stochastic import StochasticBCD
from zeroone.solvers.stochastic_settings import StochasticSettings

from measure import begin, finish, parser
from zeroone.data.files import load_data
from zeroone.heads import SoftmaxCE
from zeroone.inputs import check_inputs
from zeroone.network import Network
from zeroone.parallel import Share
from zeroone.scaling import Scaling
from zeroone.training.epochs import BatchPlan
from zeroone.training.parts import Part


def largest_eigenvalue(P, V):
    """Of P [V 1]^T [V 1]/n, by way of the n x n matrix with the same eigenvalues."""
    inputs = torch.cat([V, V.new_ones(len(V), 1)], dim=1)
    return float(torch.linalg.eigvalsh(inputs @ P @ inputs.T / len(V))[-1])


def measure(part, width, batch):
    scaling = Scaling.fit(part.X)
    plan = BatchPlan.make(part, 2, batch, 0.2, seed=0)
    network = Network.dense([part.X.shape[1], width, width, 10], SoftmaxCE(), scaling=scaling)
    solver = StochasticBCD(network, StochasticSettings(), plan.total)
    found = []
    for epoch in range(1, plan.epochs + 1):
        rng = plan.generator(epoch)
        for rows, _ in plan.rows(part, rng):
            V0 = plan.drop_inputs(scaling.apply(part.X[rows]), rng, Share(len(rows)))
            if solver.k % 10 == 5:
                inputs = [V0, *network.hidden_bits(V0)[:1]]
                found += [
                    solver.settings.step * largest_eigenvalue(metric.inverse(), V)
                    for metric, V in zip(solver.metrics, inputs, strict=False)
                ]
            solver.update(V0, part.y[rows], rng)
    values = torch.tensor(found)
    return {"largest": float(values.max()), "share_below_2": float((values < 2).float().mean())}


def main():
    options = parser(__doc__.splitlines()[0], repeats=None).parse_args()
    record = begin("w_step", options)
    data = load_data("mnist")
    part = Part(check_inputs(data.X[:20_000], torch.float32), torch.tensor(data.y[:20_000]).long())
    record["result"] = {}
    for width, batch in ((1000, 256), (1000, 64), (256, 256)):
        found = measure(part, width, batch)
        record["result"][f"width {width}, batch {batch}"] = found
        print(
            f"width {width}, batch {batch}: largest value {found['largest']:.2f}, "
            f"below 2 in {100 * found['share_below_2']:.1f}% of the steps"
        )
    finish(record, options.json)


if __name__ == "__main__":
    main()

"""A ReLU network in integers and plain C, the way TensorFlow Lite Micro's reference computes it.

Weights are int8 with a scale per unit, sums are int32. A multiplier and a shift per unit turn a sum
into a byte of the next layer, which is 0 where ReLU is. Activations are bytes from 0, so the inner
loop saves the reference's addition of a zero point. The last layer's sums become scores in a common
scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

FRACTION = 30  # bits of a multiplier
SCORES = 2**15  # the largest score: its rounding changes no label

HEADER = """#ifndef NETWORK_H
#define NETWORK_H
#include <stdint.h>
#define NETWORK_INPUTS {inputs}
#define NETWORK_CLASSES {classes}
typedef uint8_t network_input;
extern const char *const network_labels[NETWORK_CLASSES];
void network_scores(const uint8_t *sample, int32_t scores[NETWORK_CLASSES]);
int network_classify(const uint8_t *sample);
#endif
"""
BEGIN = """#include "network.h"

static int32_t scaled(int32_t sum, int32_t multiplier, int shift)
{
    return (int32_t)(((int64_t)sum * multiplier + ((int64_t)1 << (shift - 1))) >> shift);
}
"""
# By unit, as in the reference.
PLAIN = """
static int32_t sum_of(int j, const uint8_t *in, int n, const int8_t *weights, int32_t sum)
{
    int k;
    weights += j * n;
    for (k = 0; k < n; k++)
        sum += weights[k] * in[k];
    return sum;
}
#define BEGIN_LAYER(in, n, weights, units)
#define SUM(j, in, n, weights, bias) sum_of(j, in, n, weights, bias[j])
"""
# By input, so that inputs of 0 are skipped: what our export does with int8 weights.
SKIPPING = """
static int32_t sums[{widest}];

static void add_all(const uint8_t *in, int n, const int8_t *weights, int units)
{{
    int j, k;
    for (j = 0; j < units; j++)
        sums[j] = 0;
    for (k = 0; k < n; k++, weights += units)
        if (in[k])
            for (j = 0; j < units; j++)
                sums[j] += in[k] * weights[j];
}}
#define BEGIN_LAYER(in, n, weights, units) add_all(in, n, weights, units)
#define SUM(j, in, n, weights, bias) (sums[j] + bias[j])
"""
LAYERS = """
static void hidden(const uint8_t *in, int n, const int8_t *weights, const int32_t *bias,
                   const int32_t *multipliers, const uint8_t *shifts, int units, uint8_t *out)
{
    int j;
    BEGIN_LAYER(in, n, weights, units);
    for (j = 0; j < units; j++) {
        int32_t sum = scaled(SUM(j, in, n, weights, bias), multipliers[j], shifts[j]);
        out[j] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
    }
}

static void last(const uint8_t *in, int n, const int8_t *weights, const int32_t *bias,
                 const int32_t *multipliers, const uint8_t *shifts, int units, int32_t *out)
{
    int j;
    BEGIN_LAYER(in, n, weights, units);
    for (j = 0; j < units; j++)
        out[j] = scaled(SUM(j, in, n, weights, bias), multipliers[j], shifts[j]);
}
"""
CLASSIFY = """
int network_classify(const uint8_t *sample)
{
    int32_t scores[NETWORK_CLASSES];
    int j, best = 0;
    network_scores(sample, scores);
    for (j = 1; j < NETWORK_CLASSES; j++)
        if (scores[j] > scores[best])
            best = j;
    return best;
}
"""


@dataclass(frozen=True)
class Layer:
    """Weights by unit and input, and what turns a unit's sum into a byte or a score."""

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    multipliers: NDArray[np.int32]
    shifts: NDArray[np.uint8]

    def sums(self, V: NDArray[Any]) -> NDArray[np.int64]:
        """Return scaled sums, rounded half up."""
        # Products of doubles are exact here.
        sums = V.astype(np.float64) @ self.weights.T.astype(np.float64) + self.bias
        half = np.int64(1) << (self.shifts.astype(np.int64) - 1)
        return (sums.astype(np.int64) * self.multipliers + half) >> self.shifts


def quantised(layers: nn.Sequential, X: NDArray[np.uint8]) -> list[Layer]:
    """Round a trained network of inputs / 255; samples show how large activations become."""
    made, x, scale = [], torch.from_numpy(X).float() / 255, 1 / 255
    found = [layer for layer in layers if isinstance(layer, nn.Linear)]
    with torch.inference_mode():
        for layer in found:
            x = layer(x)
            is_last = layer is found[-1]
            x = x if is_last else x.relu()
            out = float(x.abs().max()) / (SCORES if is_last else 255)
            W, b = layer.weight.double().numpy(), layer.bias.double().numpy()
            units = np.abs(W).max(axis=1) / 127
            ratios = scale * units / out
            power = np.floor(-np.log2(ratios)).astype(np.int64)
            made.append(
                Layer(
                    np.round(W / units[:, None]).astype(np.int8),
                    np.round(b / (scale * units)).astype(np.int32),
                    np.round(ratios * 2.0 ** (FRACTION + power)).astype(np.int32),
                    (FRACTION + power).astype(np.uint8),
                )
            )
            scale = out
    return made


def scores_of(layers: Sequence[Layer], X: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Compute what the C code computes."""
    V: NDArray[Any] = X
    for layer in layers[:-1]:
        V = np.clip(layer.sums(V), 0, 255)
    return layers[-1].sums(V)


def write_relu(layers: Sequence[Layer], folder: Path, *, skip: bool) -> None:
    """Write network.c and network.h with the interface of our exports."""
    widths = [len(layer.weights) for layer in layers]
    n_inputs = layers[0].weights.shape[1]
    parts = [BEGIN, SKIPPING.format(widest=max(widths)) if skip else PLAIN, LAYERS]
    calls, source = [], "sample"
    for i, layer in enumerate(layers):
        weights = layer.weights.T if skip else layer.weights
        tables = {"weights": weights, "bias": layer.bias, "multipliers": layer.multipliers}
        for name, values in (tables | {"shifts": layer.shifts}).items():
            words = ", ".join(map(str, values.ravel().tolist()))
            kind = f"{values.dtype.name}_t"
            parts.append(f"static const {kind} {name}_{i}[{values.size}] = {{{words}}};\n")
        is_last = i == len(layers) - 1
        target = "scores" if is_last else f"values_{i % 2}"
        constants = f"weights_{i}, bias_{i}, multipliers_{i}, shifts_{i}"
        function = "last" if is_last else "hidden"
        n, units = layer.weights.shape[1], widths[i]
        calls.append(f"    {function}({source}, {n}, {constants}, {units}, {target});\n")
        source = target
    for side in (0, 1):
        if hidden := widths[:-1][side::2]:
            parts.append(f"static uint8_t values_{side}[{max(hidden)}];\n")
    labels = ", ".join(f'"{k}"' for k in range(widths[-1]))
    parts.append(f"const char *const network_labels[NETWORK_CLASSES] = {{{labels}}};\n")
    head = "void network_scores(const uint8_t *sample, int32_t scores[NETWORK_CLASSES])"
    parts += [f"\n{head}\n{{\n", *calls, "}\n", CLASSIFY]
    (folder / "network.c").write_text("".join(parts))
    (folder / "network.h").write_text(HEADER.format(inputs=n_inputs, classes=widths[-1]))

"""Convolutions for back-propagation: torch's own, except where it is slow or wrong on a CPU."""

from torch import Tensor, nn
from torch.nn import functional

FEW = 4  # positions of an image up to which torch's sum over patches is slower than a product


class Convolution(nn.Conv2d):
    """``nn.Conv2d`` with square kernels, without two weaknesses that it has on a CPU.

    Where the output has one position, torch's gradient of the weights takes ten times as long as
    that of a matrix product with the entries of the kernels that see more than padding. For 1x1
    kernels with a stride above 1 and channels that are no multiple of 8, that gradient writes
    beyond its memory (torch 2.13), so ``forward`` picks the pixels first.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Convolve images as ``nn.Conv2d`` does."""
        kernel, stride, padding = self.kernel_size[0], self.stride[0], int(self.padding[0])
        if kernel == 1 and stride > 1:
            picked = functional.pad(input, [padding] * 4)[:, :, ::stride, ::stride]
            return functional.conv2d(picked, self.weight, self.bias)
        beyond = [side + 2 * padding - kernel for side in input.shape[2:]]
        if not all(0 <= room < stride for room in beyond):
            return super().forward(input)
        height, width = (max(0, min(kernel - padding, side)) for side in input.shape[2:])
        seen = self.weight[:, :, padding : padding + height, padding : padding + width]
        pixels = input[:, :, :height, :width]
        product = functional.linear(pixels.flatten(1), seen.flatten(1), self.bias)
        return product[:, :, None, None]

"""Settings of stochastic BCD."""

from dataclasses import dataclass

from zeroone.nn import U_RULES
from zeroone.optim.groups import check_momentum, check_weights
from zeroone.utils.checks import (
    InputError,
    byte_count,
    count,
    not_negative,
    one_of,
    positive,
    share,
)

BATCH = 256  # samples, by default
LEAST_BATCH = 8  # samples: a unit's scale is taken from the batch


@dataclass(frozen=True)
class StochasticSettings:
    """Settings of stochastic BCD. One set of defaults serves small and large data.

    Attributes:
        epochs: passes over the data, 0 for an untrained network; None takes 10, more on small data.
        batch: samples per batch, at least 8; None takes 256, or 1,024 from 200,000 samples on, or
            all samples if there are fewer.
        move: the root mean square change of a hidden layer's pre-activations per batch, relative to
            their own scale; falls linearly to 0.
        momentum: the weight of earlier batches in the gradients that the W block solves for. 0.9
            helps deep convolutional networks; it did not help dense ones.
        head_step: the share of the W block's solution that the last layer takes; falls to a tenth.
        window: |b| up to which a bit may flip, relative to the unit's scale; falls to a half.
        damping: damping of the W block, relative to the total variance of the layer's inputs; None
            takes 0.01 for up to 1,000 batches, 0.04 from 2,000 on, in proportion between them.
        u_rule: 'expected' or 'drawn' randomised rounding, 'half' (printed), or one of your own.
        smoothing: label smoothing of the softmax head; of the hardmax head, the share by which a
            lead beyond the margin is pulled back.
        input_dropout: the share of inputs to set to their mean while training; None takes 0.2, or 0
            for fewer than 16 features, fewer than 100 samples, at least 1,000 samples per feature,
            or convolutions on images.
        input_noise: the standard deviation of Gaussian noise to add to the inputs anew in each
            batch, in the units of ``zeroone evaluate --noise``: for bytes as a share of their
            range, for other inputs relative to the scale by which the network divides them.
        weights: 'real', or 'ternary' or 'binary' for the hidden layers: a unit's weights times a
            scale, which the step ignores.
        density: the share of ternary weights that may differ from 0; 1 sets no limit. A network of
            wide layers with few such weights has a smaller file and less error than a narrow one.
        bf16: whether to compute the layers in bfloat16, by autocast; some processors are twice as
            fast in it. The W blocks stay in ``dtype``.
        lam: the price of a unit relative to twice the mean cost of removing one; 0 prunes nothing.
        keep: the share of hidden units to keep, instead of ``lam``; None keeps all.
        flash: keep no more units than fit into so many bytes of flash, such as '64k', as C code
            (see ``zeroone export --to c``); None sets no limit.

    """

    epochs: int | None = None
    batch: int | None = None
    move: float = 0.08
    momentum: float = 0.0
    head_step: float = 0.3
    window: float = 1.0
    damping: float | None = None
    u_rule: str = "expected"
    smoothing: float = 0.1
    input_dropout: float | None = None
    input_noise: float = 0.0
    weights: str = "real"
    density: float = 1.0
    bf16: bool = False
    lam: float = 0.0
    keep: float | None = None
    flash: str | int | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None:
            count("epochs", self.epochs, least=0)
        if self.batch is not None:
            count("batch", self.batch, least=LEAST_BATCH)
        for name in ("smoothing", "input_dropout"):
            if getattr(self, name) is not None and share(name, getattr(self, name)) == 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)!r}.")
        for name in ("move", "head_step", "window", "damping"):
            if getattr(self, name) is not None and positive(name, getattr(self, name)) > 1e30:
                raise InputError(f"{name} must be at most 1e30.")
        check_momentum(self.momentum)
        if type(self.bf16) is not bool:
            raise InputError(f"bf16 must be true or false, got {self.bf16!r}.")
        one_of("u_rule", self.u_rule, U_RULES)
        check_weights(self.weights, self.density)
        not_negative("lam", self.lam)
        not_negative("input_noise", self.input_noise)
        if self.keep is not None:
            if share("keep", self.keep) == 0:
                raise InputError(f"keep must be above 0 and at most 1, got {self.keep!r}.")
            if self.lam:
                raise InputError("give either lam or keep, not both.")
        if self.flash is not None:
            object.__setattr__(self, "flash", byte_count("flash", self.flash))
            if self.lam:
                raise InputError("give either lam or flash, not both.")

"""What stochastic BCD can be told."""

from dataclasses import dataclass

from zeroone.checks import InputError, count, not_negative, one_of, positive, share
from zeroone.solvers.projection import WEIGHTS

V_STEPS = ("one-step", "solve")
U_STEPS = ("expected", "drawn", "half")
LARGEST_SPREAD = 10  # units whose threshold is so far away are never on, or never off
LARGEST_STEP = 1e38  # what a float32 can hold


@dataclass(frozen=True)
class StochasticSettings:
    """Everything stochastic BCD can be told. One set of defaults serves small and large data.

    epochs: passes over the data, 0 for a network as it begins; None takes 10, or more where that
        is less than 2,000 batches
    batch: samples a batch, at least 8; None takes 256, or all samples if there are fewer
    flip_rate: the scale of a hidden step: the mean wish to flip, of the bits that may, is set to
        it; falls linearly to 0
    flip_margin: how far a flipped bit's pre-activation is pushed (units of its spread)
    window, window_end: |b| up to which a bit may flip, at the start and at the end
    step, conv_step, top_step: how much of the W block's solution is taken, in hidden dense layers,
        in convolutions and in the last layer
    top_step_end: of the last layer at the end, to which it falls linearly; None lets it be. On
        features of a body, which are easily learned by heart, a tenth of ``top_step`` was better
        (a ResNet on CIFAR-10, a small one on Fashion-MNIST), but not on MNIST
    threshold_spread: how far apart the thresholds of hidden units begin: the standard deviation of
        random shifts, in units of a pre-activation's own spread in the first batch, at most 10;
        None leaves them in the middle. A network that was trained before keeps its own. Layers on
        the features of a small body were better with 0.7
    damping: of the W block, relative to the mean variance of the layer's inputs
    v_step, v_damping: 'one-step' or 'solve' (damped relative to the mean eigenvalue of W^T W)
    u_step: 'expected' or 'drawn' randomised rounding, or 'half', the printed one
    smoothing: label smoothing of the softmax head; of the hardmax head, the share by which a lead
        beyond the margin is pulled back
    input_dropout: the share of inputs set to their mean while training; None takes 0.2, or 0 where
        a sample has fewer than 16 features or is an image for a convolution, or where there are
        fewer than 100 samples
    weights: 'real', or of the hidden layers 'ternary' or 'binary', each row times a scale that the
        step ignores; the W block's solution is kept and projected (see ``projection.project``)
    lam: the price of a unit relative to twice the mean cost of removing one; 0 prunes nothing
    keep: the share of hidden units to keep, instead of lam; None keeps all
    """

    epochs: int | None = None
    batch: int | None = None
    flip_rate: float = 0.2
    flip_margin: float = 0.5
    window: float = 1.0
    window_end: float = 0.5
    step: float = 1.0
    conv_step: float = 10.0
    top_step: float = 0.3
    top_step_end: float | None = None
    threshold_spread: float | None = None
    damping: float = 4.0
    v_step: str = "one-step"
    v_damping: float = 10.0
    u_step: str = "expected"
    smoothing: float = 0.1
    input_dropout: float | None = None
    weights: str = "real"
    lam: float = 0.0
    keep: float | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None:
            count("epochs", self.epochs, least=0)
        if self.batch is not None:
            count("batch", self.batch, least=8)  # a unit's spread is taken from the batch
        share("flip_rate", self.flip_rate)
        for name in ("smoothing", "input_dropout"):
            if getattr(self, name) is not None and share(name, getattr(self, name)) == 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)!r}.")
        for name in ("flip_margin", "window", "window_end", "damping", "v_damping"):
            positive(name, getattr(self, name))
        for name in ("step", "conv_step", "top_step"):
            if positive(name, getattr(self, name)) > LARGEST_STEP:
                raise InputError(f"{name} must be at most {LARGEST_STEP:g}.")
        if self.top_step_end is not None:
            not_negative("top_step_end", self.top_step_end)
        apart = self.threshold_spread
        if apart is not None and not_negative("threshold_spread", apart) > LARGEST_SPREAD:
            raise InputError(f"threshold_spread must be at most {LARGEST_SPREAD}, got {apart!r}.")
        one_of("v_step", self.v_step, V_STEPS)
        one_of("u_step", self.u_step, U_STEPS)
        one_of("weights", self.weights, WEIGHTS)
        not_negative("lam", self.lam)
        if self.keep is not None:
            if share("keep", self.keep) == 0:
                raise InputError(f"keep must be above 0 and at most 1, got {self.keep!r}.")
            if self.lam:
                raise InputError("give either lam or keep, not both.")

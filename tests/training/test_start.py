"""Training that begins with a trained network: ``train(start=...)``."""

import pytest

from zeroone import Callback, IntegerModel, TrainSettings, ZeroOneClassifier, quantise, train
from zeroone.data.load import load_data
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.utils.checks import InputError


def settings(**options):
    return TrainSettings.from_options(**{"epochs": 2} | options)


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def network(digits):
    return train(digits.X, digits.y, settings(hidden=(40, 20))).network


def test_layers_come_from_the_network(digits, network):
    run = train(digits.X, digits.y, settings(), start=network)
    assert run.record["settings"]["hidden"] == (40, 20)
    assert run.record["network"] == ["40", "20", "10"]


def test_keep_counts_the_units_of_the_network(digits, network):
    half = train(digits.X, digits.y, settings(keep=0.5), start=network)
    assert [op.n_out for op in half.network.operators] == [20, 10, 10]
    assert half.record["settings"]["hidden"] == (40, 20)
    same = settings(keep=0.5, hidden=(40, 20))  # of which the units were removed
    again = train(digits.X, digits.y, same, start=half.network)
    assert [op.n_out for op in again.network.operators] == [20, 10, 10]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": (256, 256)}, r"has hidden=\(40, 20\), not \(256, 256\)"),
        ({"hidden": (40,), "keep": 0.5}, r"has hidden=\(40, 20\), not \(40,\)"),
        ({"hidden": (39, 20), "keep": 0.5}, r"has hidden=\(40, 20\), not \(39, 20\)"),
        ({"head": "hardmax"}, "has head='softmax', not 'hardmax'"),
        ({"bias": False}, "has bias=True, not False"),
        ({"dtype": "float64"}, "has dtype='float32', not 'float64'"),
    ],
)
def test_settings_that_contradict_the_network_are_refused(digits, network, options, sentence):
    with pytest.raises(InputError, match=f"^the network to begin with {sentence}\\.$"):
        train(digits.X, digits.y, settings(**options), start=network)


def test_a_margin_and_the_shape_of_filters_belong_to_the_network(digits):
    made = settings(hidden=("conv3x3:4:pad1:max2",), head="hardmax", margin=0.5, epochs=1)
    start = train(digits.X, digits.y, made, image=digits.shape).network
    for other, sentence in (
        ({"hidden": ("conv3x3:4:pad1",)}, "hidden=.'conv3x3:4:pad1:max2'"),
        ({"hidden": ("conv3x3:4:pad1:average2",), "keep": 0.5}, "not .'conv3x3:4:pad1:average2'"),
        ({"margin": 1.0}, r"margin=0\.5, not 1\.0"),
    ):
        asked = settings(head="hardmax", **{"margin": 0.5} | other)
        with pytest.raises(InputError, match=sentence):
            train(digits.X, digits.y, asked, image=digits.shape, start=start)
    half = settings(head="hardmax", margin=0.5, keep=0.5, epochs=1)
    further = train(digits.X, digits.y, half, image=digits.shape, start=start)
    assert further.record["settings"]["hidden"] == ("conv3x3:4:pad1:max2",)
    assert further.network.operators[0].n_out == 2


@pytest.mark.parametrize("text", [7, "8:stream", "conv3x3:4:pad1:stream:max2", "conv2x2:5"])
def test_a_plan_of_a_layer_is_that_of_its_making(text):
    below = [LayerPlan(4, kernel=3, padding=1)] if "conv" in str(text) else [LayerPlan(4)]
    shape = (1, 8, 8) if "conv" in str(text) else (3,)
    network = Network.build(shape, [*below, LayerPlan.parse(text)], 3, SoftmaxCE())
    assert LayerPlan.of(network.layers[1]).written == text


def test_only_a_network_is_a_start(digits, network):
    classifier = ZeroOneClassifier((5,), epochs=1).fit(digits.X, digits.y)
    for other, sentence in (
        (IntegerModel(quantise(network)), "takes a zeroone.Network, not IntegerModel."),
        (classifier, "not ZeroOneClassifier; of a fitted classifier, give its network_."),
    ):
        with pytest.raises(InputError, match=sentence):
            train(digits.X, digits.y, settings(), start=other)


def test_a_warm_start_after_pieces_has_their_layers(digits):
    classifier = ZeroOneClassifier(epochs=1, warm_start=True)
    classifier.partial_fit(digits.X[:400], digits.y[:400], classes=range(10))
    learner = classifier._learner
    classifier.partial_fit(digits.X, digits.y)  # alone, it would get wider layers
    assert classifier._learner is learner
    assert classifier.n_active_ == [64, 64]
    classifier.set_params(keep=0.5).fit(digits.X, digits.y)
    assert classifier.record_["settings"]["hidden"] == (64, 64)
    assert classifier.n_active_ == [32, 32]


def test_all_comes_from_the_network_unless_settings_say_it(digits):
    made = settings(
        hidden=("conv3x3:4:pad1:max2", 9), head="hardmax", margin=0.5, bias=False, dtype="float64"
    )
    start = train(digits.X, digits.y, made, image=digits.shape).network

    class Stop(Callback):
        def on_iteration(self, entry, model):
            return True

    run = train(digits.X, digits.y, start=start, callbacks=[Stop()])
    kept = ("hidden", "head", "margin", "bias", "dtype")
    assert [run.record["settings"][name] for name in kept] == [getattr(made, n) for n in kept]
    assert run.record["plan"]["epochs"] > 2  # the others have their defaults
    changed = settings(head="hardmax", margin=0.5, bias=False, dtype="float64", augment="crop-flip")
    images = train(digits.X, digits.y, changed, start=start)  # whose shape is the network's
    assert images.record["settings"]["hidden"] == made.hidden

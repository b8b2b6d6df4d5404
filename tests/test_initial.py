"""The initial process: a body trained by Adam, its features on disk, 0/1 layers on them."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model_files import rewritten
from zeroone import Callback, TrainSettings, load
from zeroone.bodies import BITS, BODIES, Body, default_body, make_body
from zeroone.checks import InputError
from zeroone.counts import counts
from zeroone.experiments.architectures import Architecture
from zeroone.experiments.cell import Cell, run_cell
from zeroone.experiments.matrix import Matrix
from zeroone.experiments.spec import Spec, with_bodies
from zeroone.experiments.tables import summarise
from zeroone.initial import InitialSettings, make_features, train_on_body
from zeroone.layers import LayerPlan, build_layers
from zeroone.parallel import Share
from zeroone.scaling import Scaling
from zeroone.training.augment import BORDER, CropFlip
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.parts import Task

IMAGE = (1, 18, 18)
SMALL = InitialSettings("small", epochs=2, batch=20)
LAYERS = TrainSettings.from_options(hidden=(30, 20), epochs=3, batch=20, validation=0.2, seed=5)


def bars(n, seed):
    """Bytes: a bright bar at a random height, of a thickness that tells the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    images = rng.integers(0, 60, (n, 18, 18))
    for image, kind in zip(images, y, strict=True):
        top = rng.integers(0, 12)
        image[top : top + 2 * kind + 1] += 150
    return images.reshape(n, -1).astype(np.uint8), y


@pytest.fixture(scope="module")
def data():
    return {"X": bars(240, 0)[0], "y": bars(240, 0)[1], "test": bars(90, 1), "image": IMAGE}


def features_of(data, folder, initial=SMALL, settings=LAYERS, **more):
    given = {k: v for k, v in data.items() if k not in ("X", "y")}
    return make_features(data["X"], data["y"], initial, settings, folder, **given | more)


def train_both(data, out, settings=LAYERS, **more):
    given = {k: v for k, v in data.items() if k not in ("X", "y")}
    return train_on_body(data["X"], data["y"], SMALL, settings, out=out, **given | more)


def test_features_are_what_the_body_makes_and_are_made_once(data, tmp_path):
    made = features_of(data, tmp_path)
    body = made.network.body
    scaled = made.network.scaling.apply(torch.from_numpy(data["test"][0]))
    assert torch.allclose(torch.from_numpy(made.test), body.layers(scaled), atol=1e-5)
    assert made.train.shape == (240, 64)
    assert isinstance(made.train, np.memmap)
    kept = ("model.safetensors", "record.json", "train.npy", "test.npy")
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in kept}
    again = features_of(data, tmp_path)
    assert np.array_equal(again.train, made.train)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == before


def test_the_shape_of_images_may_be_any_sequence(data, tmp_path):
    made = features_of(data, tmp_path, image=list(IMAGE))
    assert made.network.body.image == IMAGE


def test_a_body_has_its_own_record_and_is_a_network_of_its_own(data, tmp_path):
    made = features_of(data, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["settings"]["rival"]["body"] == "small"
    assert (record["settings"]["epochs"], record["settings"]["batch"]) == (2, 20)
    assert len(record["history"]) == 3
    network = load(tmp_path / "model.safetensors")
    wrong = (network.predict(data["test"][0]) != data["test"][1]).mean()
    assert wrong == pytest.approx(record["result"]["test_error"])
    assert made.summary["result"] == record["result"]


def test_features_cut_short_are_computed_again(data, tmp_path):
    made = features_of(data, tmp_path)
    expected = np.array(made.test)
    content = (tmp_path / "test.npy").read_bytes()
    (tmp_path / "test.npy").write_bytes(content[: len(content) // 2])
    for content in (b"", b"nonsense", zipped()):
        (tmp_path / "train.npy").write_bytes(content)
        again = features_of(data, tmp_path)
        assert np.array_equal(again.test, expected)
        assert again.train.shape == (240, 64)


def zipped():
    file = io.BytesIO()
    np.savez(file, X=np.zeros(3))
    return file.getvalue()


def test_features_of_an_earlier_body_are_not_taken_for_those_of_a_new_one(data, tmp_path):
    first = np.array(features_of(data, tmp_path).train)
    (tmp_path / "record.json").unlink()
    other = features_of(data, tmp_path, settings=replace(LAYERS, seed=6))
    assert not np.array_equal(other.train, first)


@pytest.mark.parametrize("moment", ["before", "half-way"])
def test_a_body_is_not_lost_between_training_and_writing(data, tmp_path, monkeypatch, moment):
    expected = features_of(data, tmp_path / "whole").train

    def fail(*_arguments):
        raise InputError("the disk is full.")

    where = (
        "zeroone.initial.process._keep"
        if moment == "before"
        else "zeroone.training.run.write_record"
    )
    with monkeypatch.context() as broken:
        broken.setattr(where, fail)
        with pytest.raises(InputError, match="disk is full"):
            features_of(data, tmp_path / "cut")
    resumed = features_of(data, tmp_path / "cut", resume=True)
    assert resumed.record["resumed"] == [2]
    assert np.array_equal(resumed.train, expected)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": ("conv3x3:8",)}, "the layers on a body are dense, not conv3x3:8"),
        ({"hidden": (8,), "batch": 5000}, "batch=5000 is larger than the 240 training samples"),
    ],
)
def test_layers_that_do_not_fit_are_refused_before_the_body_is_trained(
    data, tmp_path, options, sentence
):
    with pytest.raises(InputError, match=sentence):
        train_both(data, tmp_path, TrainSettings.from_options(**options))
    assert not (tmp_path / "initial").exists()


def test_an_unfinished_run_is_refused_before_the_body_is_trained(data, tmp_path):
    (tmp_path / STATE).touch()
    with pytest.raises(InputError, match="holds an unfinished run"):
        train_both(data, str(tmp_path))
    assert not (tmp_path / "initial").exists()


def test_batches_of_an_initial_process():
    settings = InitialSettings("small", 1)
    assert settings.fitted(1000).batch == 64
    assert settings.fitted(40).batch == 40
    with pytest.raises(InputError, match="initial process's batch of 50 is larger than the 40"):
        InitialSettings("small", 1, batch=50).fitted(40)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"settings": replace(LAYERS, seed=6)}, "trained with seed=5, not 6"),
        ({"settings": replace(LAYERS, validation=0.1)}, "trained with validation=0.2, not 0.1"),
        ({"initial": replace(SMALL, batch=30)}, "trained with batch=20, not 30"),
        ({"test": bars(90, 2)}, "trained on other data"),
        ({"image": (2, 18, 9)}, "images of 18 x 18 pixels or more, these have 18 x 9"),
        ({"image": (1, 12, 27)}, "images of 18 x 18 pixels or more, these have 12 x 27"),
        ({"image": None}, "the body 'small' needs images"),
    ],
)
def test_a_body_of_something_else_is_refused(data, tmp_path, change, sentence):
    features_of(data, tmp_path)
    with pytest.raises(InputError, match=sentence):
        features_of(data, tmp_path, **change)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_layers_learn_on_features_and_the_network_takes_images(data, tmp_path, dtype):
    longer = replace(LAYERS, dtype=dtype, stochastic=replace(LAYERS.stochastic, epochs=10))
    run = train_both(data, tmp_path / "run", longer, noise=(0.1,))
    record, (X, y) = run.record, data["test"]
    assert (
        str(run.network.dtype) == str(next(run.network.body.parameters()).dtype) == f"torch.{dtype}"
    )
    assert record["result"]["test_error"] < 0.1
    wrong = (run.network.predict(X) != y).mean()
    assert wrong == pytest.approx(record["result"]["test_error"])
    assert record["result"]["noise"]["part"] == "test"
    assert record["initial"]["n_iter"] == 2
    assert record["data"]["features"] == 18 * 18
    again = load(tmp_path / "run/model.safetensors")
    assert torch.equal(again.scores(X), run.network.scores(X))
    assert (again.n_features, again.body.image) == (18 * 18, IMAGE)
    body_parameters = sum(p.numel() for p in run.network.body.parameters())
    dense = 30 * 65 + 20 * 31 + 3 * 21
    assert counts(again)["parameters"] == body_parameters + dense == record["result"]["parameters"]
    assert [tuple(bits.shape) for bits in again.bits(X)] == [(90, 30), (90, 20)]


def test_the_same_rows_are_held_out_of_both_stages(data, tmp_path):
    made = features_of(data, tmp_path)
    given = (data["X"], data["y"])
    body = Task.prepare(*given, SMALL.training(LAYERS), data["test"], None, IMAGE)
    layers = Task.prepare(*given, LAYERS, data["test"], None, IMAGE, made)
    for part in ("train", "validation", "test"):
        assert torch.equal(layers.raw[part].X, body.parts[part].X)
        rows = body.scaling.apply(body.parts[part].X)
        expected = made.network.body.layers(rows)
        assert torch.allclose(layers.parts[part].X, expected, atol=1e-5)
    assert layers.raw_digests == body.digests
    assert layers.digests != body.digests


def test_features_stay_on_disk(data, tmp_path):
    made = features_of(data, tmp_path)
    settings = replace(LAYERS, validation=0.0)
    task = Task.prepare(data["X"], data["y"], settings, data["test"], None, IMAGE, made)
    pointers = {task.parts["train"].X.data_ptr(), task.parts["test"].X.data_ptr()}
    assert pointers == {made.train.ctypes.data, made.test.ctypes.data}


class Interrupt(Callback):
    def __init__(self, after):
        self.after = after

    def on_iteration(self, entry, model):
        if entry["iteration"] == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["initial process", "layers"])
def test_both_stages_go_on_to_the_same_bits(data, tmp_path, monkeypatch, stage):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    whole = train_both(data, tmp_path / "whole")
    callbacks = [[], [], []]
    callbacks[0 if stage == "initial process" else 2] = [Interrupt(2)]
    out = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        train_both(data, out, callbacks=callbacks)
    resumed = train_both(data, out, resume=True)
    for ours, theirs in zip(whole.network.operators, resumed.network.operators, strict=True):
        assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(whole.network.scores(data["X"]), resumed.network.scores(data["X"]))
    assert not list(out.rglob(STATE))


def test_an_interruption_between_the_stages(data, tmp_path):
    out = tmp_path / "run"
    features_of(data, out / "initial")
    (out / "initial/test.npy").unlink()
    whole = train_both(data, tmp_path / "whole")
    resumed = train_both(data, out, resume=True)
    assert torch.equal(whole.network.scores(data["X"]), resumed.network.scores(data["X"]))
    with pytest.raises(InputError, match="holds a finished run: there is nothing to resume"):
        train_both(data, out, resume=True)
    with pytest.raises(InputError, match="no unfinished run on a body"):
        train_both(data, tmp_path / "nothing", resume=True)


def test_images_are_not_changed_once_features_are_made(data, tmp_path):
    settings = replace(LAYERS, augment="crop-flip")
    with pytest.raises(InputError, match="augment is for the body's training"):
        train_both(data, tmp_path, settings)


def test_crop_and_flip_against_a_plain_loop():
    rng = torch.Generator().manual_seed(3)
    X = torch.randint(0, 255, (40, 2 * 5 * 7), dtype=torch.uint8, generator=rng)
    changed = CropFlip((2, 5, 7)).apply(X, torch.Generator().manual_seed(9), Share(len(X)))
    draws = torch.Generator().manual_seed(9)
    down, right = torch.randint(2 * BORDER + 1, (2, 40, 1), generator=draws)
    flip = torch.randint(2, (40, 1), generator=draws)
    for i in range(40):
        wide = np.pad(X[i].reshape(2, 5, 7).numpy(), [(0, 0), (BORDER, BORDER), (BORDER, BORDER)])
        d, r = int(down[i]), int(right[i])
        cut = wide[:, d : d + 5, r : r + 7]
        expected = cut[:, :, ::-1] if flip[i] else cut
        assert np.array_equal(changed[i].reshape(2, 5, 7).numpy(), expected)
    assert changed.dtype == torch.uint8
    assert 5 < int(flip.sum()) < 35


def test_augmented_training_differs_and_needs_images(data):
    from zeroone import train

    plain = TrainSettings.from_options(hidden=("conv5x5:4:max2",), epochs=1, batch=40)
    first = train(data["X"], data["y"], plain, image=IMAGE)
    settings = replace(plain, augment="crop-flip")
    runs = [train(data["X"], data["y"], settings, image=IMAGE) for _ in range(2)]
    weights = [run.network.operators[0].weight for run in (first, *runs)]
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[0], weights[1])
    dense = TrainSettings.from_options(hidden=(4,), augment="crop-flip")
    with pytest.raises(InputError, match="is for images, these are not"):
        train(data["X"], data["y"], dense)
    with pytest.raises(InputError, match="augment is for batches"):
        TrainSettings.from_options(solver="exact", augment="crop-flip")


def test_resnets_are_augmented_unless_told_otherwise():
    def augment(**options):
        return InitialSettings(**{"epochs": 1} | options).training(LAYERS).augment

    assert augment(body="resnet18") == "crop-flip"
    assert augment(body="resnet18", augment="none") == "none"
    assert augment(body="small") == "none"
    with pytest.raises(InputError, match="unknown augment 'flop'"):
        augment(body="small", augment="flop")


def test_usual_bodies():
    assert default_body((1, 28, 28)) == "small"
    assert default_body((1, 8, 8)) == "tiny"
    assert default_body((3, 32, 32)) == default_body((1, 3, 28)) == default_body(None) == "resnet18"


@pytest.mark.parametrize("name", BITS)
def test_a_0_1_body_has_the_shape_of_the_other(name):
    image = (3, 32, 32)
    plans = [LayerPlan.parse(text) for text in BITS[name]]
    layers = build_layers(plans, image, generator=torch.Generator(), dtype=torch.float32)
    body = make_body(name, image, lambda _units: torch.nn.ReLU())
    features = body.eval()(torch.zeros(1, 3 * 32 * 32))
    assert np.prod(layers[-1].shape_out) == features.shape[1]


def changed_model(path, other, body=None, tensors=None):
    """The same model file with another body, or other tensors."""

    def change(header, held):
        header["body"] |= body or {}
        held |= tensors or {}
        for name in [name for name, T in held.items() if T is None]:
            del held[name]

    rewritten(path, change, to=other)
    return other


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"body": {"kind": "vgg"}}, "unknown body 'vgg'"),
        ({"body": {"kind": "resnet18"}}, "not those of a body 'resnet18'"),
        ({"body": {"image": [10**5, 18, 18]}}, "not those of a body 'small'"),
        ({"body": {"image": [1, 18]}}, "images of three sides"),
        ({"body": {"image": [1, 18, "x"]}}, "images of three sides"),
        ({"body": {"image": [1, 10**6, 18]}}, "images of three sides"),
        ({"body": {"image": [1, 18, 20]}}, "scaling is for 324 features but the network takes 360"),
        ({"body": {"image": [1, 5, 5]}}, "needs images of 18 x 18"),
        ({"tensors": {"body.layers.1.weight": torch.zeros(3)}}, "not those of a body 'small'"),
        ({"tensors": {"body.layers.1.bias": None}}, "not those of a body 'small'"),
        ({"tensors": {"body.more": torch.zeros(3)}}, "not those of a body 'small'"),
        ({"tensors": {"body.centre": None}}, "not a complete zeroone model"),
        ({"tensors": {"body.centre": torch.zeros(9)}}, "what should scale the 64 features"),
        ({"tensors": {"body.centre": torch.zeros(8, 8)}}, "what should scale the 64 features"),
        ({"tensors": {"body.scale": torch.zeros(())}}, "what should scale the 64 features"),
        ({"tensors": {"body.scale": torch.ones(7)}}, "what should scale the 64 features"),
    ],
)
def test_a_damaged_body_is_refused(data, tmp_path, change, sentence):
    features_of(data, tmp_path)
    other = changed_model(tmp_path / "model.safetensors", tmp_path / "other", **change)
    with pytest.raises(InputError, match=sentence):
        load(other)


@pytest.mark.parametrize("name", BODIES)
def test_every_body_comes_back_from_its_file(name, tmp_path):
    from zeroone.heads import make_head
    from zeroone.network import Network
    from zeroone.operators import Dense

    torch.manual_seed(0)
    image = (2, 18, 18)
    layers = make_body(name, image, lambda _units: torch.nn.ReLU())
    X = torch.randn(6, 2 * 18 * 18)
    layers(X)  # moves the averages of the normalisation
    n = layers.eval()(X).shape[1]
    scaling = Scaling(torch.randn(n), torch.rand(n) + 0.5)
    head = Dense(torch.randn(3, n + 1), n, bias=True)
    network = Network([head], make_head("softmax"), body=Body(name, image, layers, scaling))
    again = load(network.save(tmp_path / "model.safetensors"))
    assert torch.equal(again.scores(X), network.scores(X))
    expected = (layers(X) - scaling.centre) / scaling.scale
    assert torch.allclose(again.features(X), expected)


@pytest.fixture
def spec(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (X, y), (X_test, y_test) = (data["X"], data["y"]), data["test"]
    square = {"X": X.reshape(-1, 18, 18), "X_test": X_test.reshape(-1, 18, 18)}
    np.savez("bars.npz", y=y, y_test=y_test, **square)
    return Spec(
        ("bars.npz",),
        ("convnet@2:12", "convnet:12"),
        ("bcd", "ste"),
        noise=(0.1,),
        train={"epochs": 2, "batch": 40, "validation": 0.2},
        initial={"batch": 20},
    )


def test_a_matrix_trains_a_body_once_and_gives_it_a_line(spec, tmp_path):
    cells = spec.cells()
    assert [(cell.method, cell.plan.initial_epochs) for cell in cells] == [
        ("initial", 2),
        ("bcd", 2),
        ("ste", 2),
        ("bcd", None),
        ("ste", None),
    ]
    assert len({cell.seed for cell in cells[:3]}) == 1
    assert len({cell.body_folder for cell in cells[:3]}) == 1
    two = replace(spec, architectures=("convnet@2:12", "convnet@2:9")).cells()
    assert [cell.method for cell in two] == ["initial", "bcd", "ste", "bcd", "ste"]
    assert with_bodies(cells[1:]) == cells
    matrix = Matrix.open(cells[:3], tmp_path / "out")
    matrix.run(matrix.cells, jobs=1)
    rows = summarise(matrix)
    assert not matrix.failed
    assert [row["label"] for row in rows][:2] == ["initial process (Adam)", "0/1 BCD"]
    assert all("noise" in row and "test_error" in row for row in rows)
    assert rows[1]["parameters"] == rows[2]["parameters"]
    (body,) = (tmp_path / "out/.store/bodies").iterdir()
    assert (body / "record.json").is_file()
    assert not list((tmp_path / "out/.store").rglob(STATE))
    record = matrix.records[cells[1]]
    assert record["settings"]["initial"]["batch"] == 20
    shutil.rmtree(tmp_path / "out/.store")
    other = [replace(cell, architecture="convnet@2:9") for cell in cells[1:2]]
    later = Matrix.open(with_bodies(other), tmp_path / "out")
    assert [cell.method for cell in later.missing] == ["bcd"]
    later.run(later.missing, jobs=1)
    assert [(row["label"], row["n"]) for row in summarise(later)] == [
        ("initial process (Adam)", 1),
        ("0/1 BCD", 1),
    ]


def test_methods_on_one_body_share_what_it_was_trained_on(spec):
    own = {"mine": {"method": "bcd", "validation": 0.5}}
    other = replace(spec, architectures=("convnet@2:12",), methods=("bcd", "mine"), variants=own)
    with pytest.raises(InputError, match="share its scaling, validation, dtype"):
        other.cells()


def test_cells_on_a_body_that_failed_say_so(spec, tmp_path):
    wild = replace(spec, initial={"learning_rate": 1e30})
    matrix = Matrix.open(wild.cells(), tmp_path / "out")
    matrix.run(matrix.cells[:2], jobs=1)
    reasons = [matrix.records[cell]["reason"] for cell in matrix.cells[:2]]
    assert "the initial process diverged: the loss was no longer finite in epoch 1" in reasons[0]
    assert "the initial process that trains its body has no result" in reasons[1]


@pytest.mark.parametrize("method", ["bcd", "ste"])
def test_a_cell_that_was_interrupted_goes_on(spec, tmp_path, monkeypatch, method):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    options = {"epochs": 3, "batch": 40}
    rival = method == "ste"
    options |= {"activation": "ste"} if rival else {}
    cell = Cell(spec.data[0], "convnet:12", method, 0, rival, options)
    whole = run_cell(cell)["record"]
    kept = replace(cell, store=tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run_cell(kept, [Interrupt(2)])
    assert list((tmp_path / "store").rglob(STATE))
    epochs = []

    class Watch(Callback):
        def on_iteration(self, entry, model):
            epochs.append(entry["iteration"])

    assert run_cell(kept, [Watch()])["record"] == whole
    assert epochs in ([2, 3], [3])  # the interrupted epoch counts if its state was kept
    assert not list((tmp_path / "store").rglob(STATE))


def test_a_cell_begins_anew_where_its_state_is_of_no_use(spec, tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    cell = Cell(spec.data[0], "f3nn:12", "bcd", 0, options={"epochs": 3, "batch": 40})
    whole = run_cell(cell)["record"]
    kept = replace(cell, store=tmp_path / "store")

    def interrupt(options):
        with pytest.raises(KeyboardInterrupt):
            run_cell(replace(kept, options=cell.options | options), [Interrupt(2)])
        (state,) = (tmp_path / "store").rglob(STATE)
        return state

    interrupt({"move": 0.02})  # of other settings
    assert run_cell(kept)["record"] == whole
    state = interrupt({})
    state.write_bytes(state.read_bytes()[:100])
    assert run_cell(kept)["record"] == whole


def test_the_noise_of_a_body_is_on_the_samples_of_the_others(spec, tmp_path):
    with np.load(spec.data[0]) as held:
        np.savez("one.npz", X=held["X"], y=held["y"])
    cells = replace(spec, data=("one.npz",)).cells()[:2]
    results = [run_cell(replace(cell, store=tmp_path))["record"]["result"] for cell in cells]
    assert [result["noise"]["part"] for result in results] == ["validation", "validation"]


def test_rivals_on_convolutions_are_counted_like_0_1_networks(spec, monkeypatch):
    hidden = ("conv5x5:4:max2", "conv3x3:5:max2", 12)
    table = {"tiny": (None, hidden)}
    monkeypatch.setattr("zeroone.experiments.architectures.ARCHITECTURES", table)
    assert Architecture.parse("tiny").hidden == hidden
    results = [
        run_cell(Cell(spec.data[0], "tiny", "any", 0, rival, {"epochs": 1, **own}))["record"]
        for rival, own in (
            (False, {}),
            (True, {"activation": "ste"}),
            (True, {"activation": "relu"}),
        )
    ]
    parameters = {record["result"]["parameters"] for record in results}
    assert parameters == {4 * 26 + 5 * 37 + 12 * 21 + 3 * 13}
    units = [record["result"]["active_units"] for record in results]
    assert units == [[4, 5, 12]] * 3
    assert results[0]["result"]["operations"] == results[1]["result"]["operations"]


@pytest.mark.parametrize("rival", [True, False])
def test_features_are_dropped_and_images_are_not(spec, monkeypatch, rival):
    from zeroone.training.epochs import BatchPlan

    seen = []
    make = BatchPlan.make
    monkeypatch.setattr(
        BatchPlan, "make", lambda *args, **more: seen.append(make(*args, **more)) or seen[-1]
    )
    cell = replace(spec.cells()[2 if rival else 1], store=Path("store"))
    run_cell(replace(cell.below, store=Path("store")))
    body = next(plan for plan in seen if plan.epochs == 2 and not plan.input_dropout)
    assert body.input_dropout == 0
    run_cell(cell)
    assert seen[-1].input_dropout == 0.2

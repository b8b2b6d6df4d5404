"""The training loop: records, reasons for stopping, erratum E6, and bad input."""

import json

import numpy as np
import pytest
import torch

from zeroone import Callback, TrainSettings, load, train
from zeroone.data.load import load_data
from zeroone.nn.scaling import Scaling
from zeroone.training.epochs import BatchPlan
from zeroone.training.text_progress import Lines
from zeroone.training.training_data import Subset
from zeroone.utils.parallel import Share


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


EXACT = {"solver": "exact", "head": "hardmax"}


def small(**options):
    return TrainSettings.from_options(**{"hidden": (30,), "max_iter": 3, **EXACT, **options})


class Seen(Callback):
    """Keep the entries."""

    def __init__(self):
        self.entries = []

    def on_iteration(self, entry, model):
        self.entries.append(entry)


def test_training_on_digits_learns_and_records(digits, tmp_path):
    seen = Seen()
    settings = TrainSettings.from_options(hidden=(200,), max_iter=12, check_every=5, **EXACT)
    run = train(digits.X, digits.y, settings, test=digits.test, name="digits", callbacks=[seen])
    record = run.record
    assert record["result"]["test_error"] < 0.12
    assert [entry["iteration"] for entry in seen.entries] == list(range(1, 13))
    assert (str(run.status), run.n_iter) == ("max_iter", 12)
    assert run.reason == "the limit of max_iter=12 was reached"
    assert set(record["residuals"]) == {"U_h", "W", "V", "U"}
    folder = run.save(tmp_path / "run")
    written = json.loads((folder / "record.json").read_text())
    assert written["settings"]["hidden"] == [200]
    assert written["settings"]["exact"]["tau"] == 1e-3
    assert written["seed"] == 0
    assert written["data"]["name"] == "digits"
    assert written["data"]["samples"] == {"train": 1437, "test": 360}
    assert len(written["data"]["sha256"]["train"]) == 64
    assert written["package"]
    assert "commit" in written
    assert written["machine"]["cores"] >= 1
    assert len(written["history"]) == 13
    again = load(folder / "model.safetensors")
    error = float((again.predict(digits.X_test) != digits.y_test).mean())
    assert error == pytest.approx(record["result"]["test_error"])


def test_the_printed_settings_do_not_train(digits):
    """E6: after 35 sweeps no bit has flipped and the weights have hardly moved."""
    settings = TrainSettings.from_options(preset="paper", hidden=(100, 100))
    record = train(digits.X, digits.y, settings).record
    history = record["history"]
    assert record["n_iter"] == 35
    assert abs(history[-1]["train_error"] - history[0]["train_error"]) < 0.01
    assert max(max(entry["flipped"]) for entry in history[1:]) < 1e-3
    assert sum(max(entry["moved"]) for entry in history[1:]) < 0.01
    assert settings.bias is False
    assert settings.margin == 0


def test_the_lipschitz_step_with_the_printed_lambda_prunes_everything(digits):
    """E6: one sweep empties every column of the network."""
    settings = TrainSettings.from_options(preset="paper", hidden=(100, 100), beta=None)
    record = train(digits.X, digits.y, settings).record
    assert record["result"]["active_units"] == [0, 0]


def test_f_alone_does_not_judge_a_network(digits):
    """E5: with W = 0, F is nearly 0 at an error of about 90%."""
    settings = small(hidden=(20, 20), lam=1.0, margin=0.0, bias=False, max_iter=3)
    run = train(digits.X, digits.y, settings)
    assert all(float(op.weight.abs().max()) == 0 for op in run.network.operators)
    assert run.record["objective"] < 1e-6
    assert run.record["result"]["train_error"] > 0.85


def test_convergence_is_said(digits):
    settings = small(hidden=(5,), max_iter=2000, tol=1e-2, check_every=1)
    run = train(digits.X[:100], digits.y[:100], settings)
    assert str(run.status) == "converged"
    assert run.reason == "every stationarity residual is at most 0.01"
    assert max(run.record["residuals"].values()) <= 1e-2


def test_divergence_is_said(digits, tmp_path):
    run = train(digits.X, digits.y, small(beta=1e6, tau=1.0, max_iter=50, pgm_steps=50))
    assert str(run.status) == "diverged"
    run_record = json.loads((run.save(tmp_path) / "record.json").read_text())
    assert run_record["objective"] is None
    assert not (tmp_path / "model.safetensors").exists()  # no model that cannot be used


def test_same_seed_same_file(digits, tmp_path):
    files = []
    for name in ("a", "b"):
        folder = train(digits.X, digits.y, small(seed=5)).save(tmp_path / name)
        files.append((folder / "model.safetensors").read_bytes())
    assert files[0] == files[1]
    other = train(digits.X, digits.y, small(seed=6)).save(tmp_path / "c")
    assert (other / "model.safetensors").read_bytes() != files[0]


def test_string_labels_and_float64(digits):
    names = np.array([f"digit {k}" for k in range(10)])
    run = train(digits.X, names[digits.y], small(dtype="float64"))
    assert set(run.network.predict(digits.X)) <= set(names)
    assert run.network.scores(digits.X).dtype.is_floating_point


def test_an_unknown_test_label_is_never_right(digits):
    known = train(digits.X, digits.y, small(), test=digits.test).record["result"]["test_error"]
    y_test = digits.y_test.copy()
    y_test[:180] = 77
    record = train(digits.X, digits.y, small(), test=(digits.X_test, y_test)).record
    assert 0.5 <= record["result"]["test_error"] <= 0.5 + known
    with pytest.raises(ValueError, match="no label is one of the network's classes"):
        train(digits.X, digits.y, small(), test=(digits.X_test, y_test[:180].repeat(2)))


X, y = np.random.default_rng(0).normal(size=(8, 3)), np.array([0, 1] * 4)


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        (np.where(X > 1, np.nan, X), y, "X contains NaN or infinity"),
        (np.where(X > 1, np.inf, X), y, "X contains NaN or infinity"),
        (np.full_like(X, 1e300), y, "X contains NaN or infinity"),
        (np.full_like(X, 1e25), y, "X holds numbers beyond 3e"),
        (X[:0], y[:0], "X has no samples"),
        (X[:, :0], y, "X has no features"),
        (X[0], y, "X must be a matrix with one sample a row"),
        (X.astype(str), y, "X must hold numbers"),
        (X, y * 0, "one class only"),
        (X, y[:-1], "X has 8 rows but y has 7 labels"),
        (X, y[:, None], "y must be a vector"),
        (X, np.where(y == 0, np.nan, 1.0), "y contains NaN"),
        (X, X[:, 0], "y holds continuous numbers, such as 0.12.*cut the numbers into classes"),
        (X, [2**63, 2**63 + 1, -1, 1] * 2, "numbers that float64 rounds: give them as strings"),
        (X, np.array([None] * 8), "labels must be numbers or strings"),
        (X, [1, "1"] * 4, "y mixes numbers and text"),
        (X, ["a", "a\0"] * 4, "a label ends with NUL"),
    ],
)
def test_bad_data_get_one_sentence(X, y, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        train(X, y, small())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": 300}, "hidden must be a sequence of widths, got 300."),
        ({"hidden": (5.0,)}, "every hidden width must be a whole number of at least 1, got 5.0."),
        ({"hidden": (10**12,)}, "every hidden width must be a whole number up to 1000000"),
        ({"max_iter": 2.0, **EXACT}, "max_iter must be a whole number of at least 1, got 2.0."),
        ({"tau": "1", **EXACT}, "tau must be a positive number, got '1'."),
        ({"validation": "x"}, "validation must be zero or a positive number, got 'x'."),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1."),
        ({"validation": 1.0}, "validation must be below 1, got 1.0."),
        ({"hidden": (5, 0)}, "every hidden width must be a whole number of at least 1, got 0."),
        ({"solver": "exakt"}, "choose from stochastic, exact. Did you mean 'exact'?"),
        ({"tau": 1.0}, "tau is a setting of solver='exact', not of 'stochastic'."),
        ({"keep": 0.5, **EXACT}, "keep is a setting of solver='stochastic', not of 'exact'."),
        ({"patience": 3}, "patience needs a validation part, such as validation=0.1."),
        ({"scaling": "none"}, "unknown scaling 'none'; choose from auto, common, feature."),
        ({"move": -0.1}, "move must be a positive number, got -0.1."),
        ({"head_step": 0}, "head_step must be a positive number, got 0."),
        ({"keep": 0.0}, "keep must be above 0 and at most 1, got 0.0."),
        ({"keep": 1.2}, "keep must lie between 0 and 1, got 1.2."),
        ({"keep": 0.5, "lam": 0.1}, "give either lam or keep, not both."),
        ({"input_dropout": 1.0}, "input_dropout must be below 1, got 1.0."),
        ({"input_noise": -1}, "input_noise must be zero or a positive number, got -1."),
        ({"u_rule": "halv"}, "unknown u_rule 'halv'; choose from expected, drawn, half."),
        ({"margin": 2.0}, "margin is a setting of head='hardmax'."),
        ({"preset": "paper", "solver": "stochastic"}, "preset='paper' is for solver='exact'"),
        ({"batch": 1}, "batch must be a whole number of at least 8, got 1."),
        ({"move": 1e300}, "move must be at most 1e30."),
        ({"epochs": -1}, "epochs must be a whole number of at least 0, got -1."),
        ({"window": 0}, "window must be a positive number, got 0."),
        ({"head": "soft"}, "unknown head 'soft'; choose from hardmax, softmax, logistic, linear."),
        ({"preset": "papr"}, "unknown preset 'papr'; choose from paper. Did you mean 'paper'?"),
        ({"lamda": 1.0}, "unknown option 'lamda'"),
        ({"margin": -1.0, **EXACT}, "margin must be zero or a positive number, got -1.0."),
        ({"preset": "paper", "head": "softmax"}, "Lemma 1, which needs head='hardmax'."),
    ],
)
def test_bad_options_get_one_sentence(options, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        TrainSettings.from_options(**options)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_test_data(digits):
    with pytest.raises(ValueError, match="the network takes 64 features, the data have 3"):
        train(digits.X, digits.y, small(), test=(X, y))
    with pytest.raises(ValueError, match="X has 360 rows but y has 5 labels"):
        train(digits.X, digits.y, small(), test=(digits.X_test, digits.y_test[:5]))
    with pytest.raises(ValueError, match="y must be a vector"):
        train(digits.X, digits.y, small(), test=(digits.X_test, digits.y_test[:, None]))


def test_arrays_in_unusual_memory(digits):
    expected = train(digits.X, digits.y, small()).network
    for X in (digits.X.astype(">f8"), digits.X[::-1][::-1], digits.X.astype(np.longdouble)):
        network = train(X, digits.y, small()).network
        assert network.predict(X[::-1]).tolist() == expected.predict(digits.X)[::-1].tolist()


def test_numpy_settings_reach_the_record(digits, tmp_path):
    settings = small(lam=np.float32(0.25), hidden=(np.int64(4),), max_iter=np.int64(1))
    folder = train(digits.X, digits.y, settings).save(tmp_path)
    assert json.loads((folder / "record.json").read_text())["settings"]["exact"]["lam"] == 0.25


def test_stochastic_bcd_on_digits(digits):
    settings = TrainSettings.from_options(hidden=(60, 40), epochs=15, batch=128, keep=0.5)
    run = train(digits.X, digits.y, settings, test=digits.test)
    record = run.record
    assert record["result"]["test_error"] < 0.1
    assert (str(run.status), run.reason) == ("completed", "all 15 epochs are done")
    assert record["result"]["active_units"] == [30, 20]
    assert record["plan"] == {"epochs": 15, "batches": 12}
    assert "exact" not in record["settings"]
    history = record["history"]
    units = [entry["active_units"][0] for entry in history]
    assert units == sorted(units, reverse=True)
    assert (units[0], units[-1]) == (60, 30)
    assert len(set(units)) > 4  # they leave one after the other
    moves = [entry["move"] for entry in history]
    assert moves == pytest.approx(np.linspace(0.08, 0, 16))
    assert min(history[1]["flipped"]) > 0.01 > max(history[-1]["flipped"])
    assert history[-1]["running_error"] < 0.1
    assert history[0]["loss"] is None
    assert record["network"] == ["30", "20", "10"]


def test_small_data_get_more_epochs_and_equal_batches(digits):
    def make(n, features=20, **more):
        part = Subset(torch.zeros(n, features), torch.zeros(n))
        return BatchPlan.make(part, TrainSettings.from_options(**more))

    plan = make(1437)
    assert (plan.epochs, plan.batches, plan.input_dropout) == (60, 6, 0.2)
    assert make(100, features=3).input_dropout == 0
    assert [make(n).input_dropout for n in (19_999, 20_000)] == [0.2, 0.0]
    images = Subset(torch.zeros(1500, 64), torch.zeros(1500))
    assert BatchPlan.make(images, TrainSettings(), of_images=True).input_dropout == 0
    assert (make(60_000).epochs, make(60_000).batches, make(5).batches) == (10, 235, 1)
    part = Subset(torch.zeros(1437, 20), torch.zeros(1437))
    first, second, again = (
        [rows.tolist() for rows, _ in plan.rows(part, plan.generator(epoch))] for epoch in (1, 2, 1)
    )
    assert {len(rows) for rows in first} == {239, 240}
    assert sorted(row for rows in first for row in rows) == list(range(1437))
    assert second[0] != first[0]
    assert again == first
    with pytest.raises(ValueError, match="batch=8 is larger than the 5 training samples"):
        make(5, batch=8)


def test_dropped_inputs_keep_their_mean():
    plan = BatchPlan(1, 1, 0.25, 0)
    V = plan.drop_inputs(torch.ones(200, 100), plan.generator(1), Share(200))
    assert sorted(V.unique().tolist()) == pytest.approx([0.0, 1 / 0.75])
    assert float(V.mean()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("kind", ["common", "feature"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_noise_on_inputs_has_the_units_of_evaluate(kind, dtype):
    rng = torch.Generator().manual_seed(0)
    X = (torch.rand(4000, 3, generator=rng) * torch.tensor([250.0, 100.0, 10.0])).to(dtype)
    scaling = Scaling.fit(X, kind=kind)
    plan = BatchPlan(1, 1, 0.0, 0, input_noise=0.1)
    noise = plan.add_noise(X, scaling, plan.generator(1), Share(len(X))) - X.float()
    expected = torch.tensor(25.5) if dtype is torch.uint8 else 0.1 * scaling.scale
    assert noise.std(dim=0) / expected == pytest.approx([1.0] * 3, abs=0.04)
    assert noise.mean(dim=0) / expected == pytest.approx([0.0] * 3, abs=0.06)


def test_ranks_add_the_noise_of_the_whole_batch():
    plan, X = BatchPlan(1, 1, 0.0, 0, input_noise=0.1), torch.zeros(6, 3)
    scaling, places = Scaling.identity(3), torch.tensor([1, 4])
    whole, part = (
        plan.add_noise(rows, scaling, plan.generator(2), share)
        for rows, share in ((X, Share(6)), (X[places], Share(6, places)))
    )
    assert torch.equal(part, whole[places])
    quiet, rng = BatchPlan(1, 1, 0.0, 0), plan.generator(1)
    assert quiet.add_noise(X, scaling, rng, Share(6)) is X
    assert torch.equal(rng.get_state(), plan.generator(1).get_state())  # nothing was drawn


def test_noise_on_inputs_changes_a_training_and_its_record(digits):
    few = {"hidden": (10,), "epochs": 1, "batch": 500}
    runs = [
        train(digits.X, digits.y, TrainSettings.from_options(**few, **noise))
        for noise in ({}, {"input_noise": 0.0}, {"input_noise": 0.3}, {"input_noise": 0.3})
    ]
    first = [run.network.operators[0].weight for run in runs]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])
    assert torch.equal(first[2], first[3])
    assert runs[2].record["settings"]["stochastic"]["input_noise"] == 0.3


def test_scores_that_are_no_numbers_end_the_run(digits, tmp_path):
    settings = TrainSettings.from_options(hidden=(10,), epochs=5, head_step=1e30, head="hardmax")
    run = train(digits.X, digits.y, settings, out=tmp_path)
    assert str(run.status) == "diverged"
    assert run.reason == "in epoch 1 the outputs of layers.1.linear are not finite"
    assert {p.name for p in tmp_path.iterdir()} == {"record.json", ".lock"}


def test_the_scaling_sees_features_in_units_of_their_own():
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(100, 4, generator=rng) * torch.tensor([1.0, 2.0, 3.0, 0.0])
    assert Scaling.fit(X).scale.ndim == 0
    X[:, 2] *= 1000
    scaled = Scaling.fit(X).apply(X)
    assert scaled.std(dim=0, correction=0).tolist() == pytest.approx([1, 1, 1, 0], abs=1e-5)
    assert Scaling.fit(X, kind="common").scale.ndim == 0
    assert Scaling.fit(torch.full((9, 2), 0.1), kind="feature").scale.tolist() == [1.0, 1.0]


def test_the_training_error_is_scored_on_a_sample_spread_over_all(digits):
    part = Subset(torch.arange(50.0)[:, None], torch.arange(50))
    assert part.sample(50) is part
    assert part.sample(3).y.tolist() == [0, 24, 49]


def test_plain_lines_every_half_minute(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("zeroone.training.text_progress.time.monotonic", lambda: now[0])
    lines = Lines("training")
    lines.on_start(0, 100)
    for k in range(1, 5):
        for batch in range(1, 11):
            now[0] += 4
            lines.on_batch(k, batch, 10)
        lines.on_iteration({"iteration": k, "loss": 0.5, "test_error": 0.25}, None)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "training: 80% of 1/100, about 66 min left"
    assert said[1] == "training: 60% of 2/100, about 66 min left"
    assert len(said) == 5  # 160 seconds, one at most every 30
    lines.on_iteration({"iteration": 10, "loss": 0.5, "test_error": 0.25}, None)
    assert "training: epoch 10/100, loss 0.5, test error 25.00%" in capsys.readouterr().err

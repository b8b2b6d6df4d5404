"""What a run matrix reads: its runs, their seeds, architectures, methods."""

from dataclasses import replace
from pathlib import Path

import pytest
from runs_made_up import made_up

from paper.matrix.architectures import Architecture
from paper.matrix.methods import METHODS
from paper.matrix.run import Run
from paper.matrix.spec import Spec
from zeroone.baselines.activations import ACTIVATIONS
from zeroone.utils.checks import InputError


def test_a_spec_names_its_cells(spec):
    runs = spec.runs()
    assert [str(run) for run in runs[:4]] == [
        "digits, f3nn:8-6, relu, repetition 0",
        "digits, f3nn:8-6, bcd, repetition 0",
        "digits, f3nn:8-6, wild, repetition 0",
        "digits, f3nn:8-6, relu, repetition 1",
    ]
    relu, bcd, wild = (run.describe() for run in runs[:3])
    assert relu["epochs"] == bcd["stochastic"]["epochs"] == 2
    assert "stochastic" not in relu
    assert relu["rival"]["smoothing"] == wild["rival"]["smoothing"] == 0
    assert wild["rival"]["learning_rate"] == 1e30
    assert wild["rival"]["activation"] == "relu"
    assert "rival" not in bcd
    assert bcd["hidden"] == relu["hidden"] == [8, 6]
    assert runs[2].state_folder.parts[-4:] == ("digits", "f3nn_8-6", "wild", "0")


def test_seeds_come_from_all_four():
    run = made_up()
    others = [
        replace(run, data="mnist"),
        replace(run, architecture="f3nn:8-7"),
        replace(run, method="tanh"),
        replace(run, repetition=1),
    ]
    assert len({c.seed for c in [run, *others]}) == 5
    assert replace(run, options={"epochs": 7}).seed == run.seed
    assert run.seed == 387062914  # on every machine
    assert run.settings.seed == run.seed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f3nn", (None, (2000, 2000))),
        ("f3nn:1000-500-20", (None, (1000, 500, 20))),
        ("convnet", ("small", (2000, 2000))),
        ("lenet", (None, ("conv5x5:32:max2", "conv5x5:64:max2", 500))),
        ("resnet18", ("resnet18", (1500, 1500))),
        ("resnet18-3x3:64", ("resnet18-3x3", (64,))),
        ("convnet@5", ("small", (2000, 2000), 5)),
        ("convnet@2:30-20", ("small", (30, 20), 2)),
    ],
)
def test_architectures(text, expected):
    assert Architecture.parse(text) == Architecture(*expected)


def test_a_backbone_without_pretraining_has_bits_as_well():
    assert Architecture.parse("convnet:9").bits == (
        "conv3x3:32:max2",
        "conv3x3:64:max2",
        "conv3x3:64",
        9,
    )
    assert Architecture.parse("convnet@1:9").bits == (9,)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"architectures": ["f3nn:"]}, "written like f3nn:1000-1000"),
        ({"architectures": ["f3nn:10x10"]}, "written like f3nn:1000-1000"),
        ({"architectures": ["f4nn"]}, "unknown architecture 'f4nn'.*Did you mean 'f3nn'"),
        ({"architectures": ["f3nn@3"]}, "f3nn has no backbone to pretrain"),
        ({"architectures": ["convnet@"]}, "written like convnet:1000-1000"),
        (
            {"architectures": ["convnet@1"], "pretraining": {"epochs": 3}},
            "unknown option of pretraining 'epochs'",
        ),
        (
            {"architectures": ["convnet@1"], "pretraining": {"bach": 3}},
            "unknown option of pretraining 'bach'.*Did you mean 'batch'",
        ),
        (
            {"architectures": ["convnet@1"], "pretraining": {"batch": 1}},
            "batch must be a whole number",
        ),
        ({"methods": ["rleu"]}, "unknown method 'rleu'.*Did you mean 'relu'"),
        ({"methods": []}, "needs methods, a list of names"),
        ({"data": "digits"}, "needs data, a list of names"),
        ({"data": [1]}, "needs data, a list of names"),
        ({"method": ["relu"]}, "unknown entry of a run matrix 'method'.*'methods'"),
        ({"seeds": 0}, "seeds must be a whole number"),
        ({"noise": [-1]}, "every noise level must be zero or a positive number"),
        ({"noise": 0.1}, "noise must be a list"),
        ({"train": {"epoch": 3}}, "unknown option .*'epoch'.*Did you mean 'epochs'"),
        ({"train": 3}, r"train must be a table of a run matrix, \[train\]"),
        ({"baselines": {"learning_rate": -1}}, "learning_rate must be a positive number"),
        ({"variants": {"mine": {"epochs": 3}}}, "'mine' must say which method it is like"),
        ({"variants": {"mine": {"method": "mine"}}}, "unknown method 'mine'"),
        ({"variants": {"relu": {"method": "tanh"}}}, "'relu' is a method already"),
        (
            {"variants": {"mine": {"method": "tanh", "learning_rat": 1}}},
            "Did you mean 'learning_rate'",
        ),
        (
            {"variants": {"mine": {"method": "tanh", "batch_norm": "false"}}},
            "batch_norm must be true",
        ),
        ({"variants": {"mine": 3}}, "'mine' must say which method it is like"),
        ({"train": {"hidden": [3]}}, r"hidden in \[train\] would contradict the architecture"),
        ({"train": {"seed": 3}}, r"seed in \[train\] would contradict the seed"),
        ({"baselines": {"activation": "tanh"}}, "would contradict the method"),
        ({"train": {"keep": 0.5}}, "unknown option of a network trained by Adam 'keep'"),
        ({"noise": [[0.1]]}, "noise must be a list of levels"),
        ({"seeds": [[1]]}, "seeds must be a whole number"),
        ({"label": 3}, "label must be the name of a column"),
    ],
)
def test_specs_that_cannot_be(change, sentence):
    content = {"data": ["digits"], "architectures": ["f3nn:8"], "methods": ["relu", "bcd"]}
    with pytest.raises(InputError, match=sentence):
        Spec.from_dict(content | change).runs()


def test_spec_files_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*none\.toml"):
        Spec.read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("data = [")
    with pytest.raises(InputError, match=r"bad\.toml is not a TOML file"):
        Spec.read(tmp_path / "bad.toml")


def test_the_specs_of_the_repository_are_valid():
    folder = Path(__file__).parents[2] / "paper/matrices"
    paths = list(folder.glob("*.toml"))
    assert paths
    for path in paths:
        assert Spec.read(path).runs()


def test_no_two_runs_share_a_state():
    names = ["a b", "a_b", "a/b", "..", "m_ine.csv", "m/ine.csv", "a.b", "a-b", "ä"]
    paths = [replace(made_up(), data=name).state_folder for name in names]
    assert len(set(paths)) == len(names)
    assert all(".." not in path.parts and len(path.parts) == 6 for path in paths)
    assert len({made_up(name).state_folder for name in names}) == len(names)


def test_methods_are_what_they_say():
    activations = {}
    for name, method in METHODS.items():
        described = Run("digits", "f3nn:8", name, 0, method.baseline, method.options).describe()
        activations[name] = described.get("rival", {}).get("activation")
        if name in ACTIVATIONS:
            assert activations[name] == name
    assert set(ACTIVATIONS) <= set(METHODS)
    assert [n for n, a in activations.items() if a is None] == ["bcd", "bcd-hardmax", "bcd-half"]
    assert activations["ste-bn"] == "ste"
    assert METHODS["ste-bn"].options["batch_norm"]


def test_tables_of_options_are_read_even_if_no_row_uses_them():
    with pytest.raises(InputError, match="unknown option 'kep'"):
        Spec(("digits",), ("f3nn:4",), ("relu",), bcd={"kep": 0.5}).runs()
    with pytest.raises(InputError, match="unknown option of a network trained by Adam 'rate'"):
        Spec(("digits",), ("f3nn:4",), ("bcd",), baselines={"rate": 0.5}).runs()


def test_matrices_that_never_end():
    content = {"data": ["digits"], "architectures": ["f3nn"], "methods": ["relu"]}
    with pytest.raises(InputError, match="at most 10,000 runs, not 65,536"):
        Spec.from_dict(content | {"seeds": 2**16})
    with pytest.raises(InputError, match="seeds must be a whole number up to"):
        Spec.from_dict(content | {"seeds": 10**400})
    with pytest.raises(InputError, match="architectures are written like"):
        Spec.from_dict(content | {"architectures": ["f3nn:" + "9" * 5000]}).runs()

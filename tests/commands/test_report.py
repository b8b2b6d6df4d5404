"""``zeroone report``: one self-contained page, in a real browser where there is one."""

import base64
import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from benchmarks.browser import browser, complaints, requests, why_not
from zeroone.commands.figures import Line, line_chart
from zeroone.commands.report import Evaluation, evaluate, report
from zeroone.data.load import load_data
from zeroone.nn.network_file import load
from zeroone.pretraining import PretrainingSettings, train_on_backbone
from zeroone.training import TrainSettings, train
from zeroone.training.text_progress import percent
from zeroone.training.training_data import known_part
from zeroone.utils.checks import InputError

VOID = {"meta", "link", "img"}


def write_report(runs, out, **more):
    report(tuple(runs), out=out, quiet=True, **more)
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of finished runs: stochastic, exact, convolutional, not on images."""
    folder = tmp_path_factory.mktemp("runs")
    digits, tumours = load_data("digits"), load_data("breast-cancer")
    plans = {
        "stochastic": (digits, {"hidden": (30, 20), "epochs": 4, "batch": 100, "keep": 0.6}),
        "exact": (digits, {"hidden": (20,), "solver": "exact", "max_iter": 3, "lam": 1e-4}),
        "conv": (digits, {"hidden": ("conv3x3:6:max2", 20), "epochs": 2, "batch": 100}),
        "numbers": (tumours, {"hidden": (10,), "epochs": 2, "batch": 50}),
    }
    for name, (split, options) in plans.items():
        train(
            split.X,
            split.y,
            TrainSettings.from_options(**options),
            test=split.test,
            name=split.name,
            image=split.shape,
            out=folder / name,
        )
    return folder


@pytest.fixture(scope="module")
def page(runs):
    """The page of all four."""
    paths = [runs / name for name in ("stochastic", "exact", "conv", "numbers")]
    return write_report(paths, runs / "report.html")


class Tags(HTMLParser):
    """Checks that tags close in order, and counts them."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_makes_no_requests(page):
    text = page.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert set(tags.ids) == {"summary", "curves", "confusions", "mistakes", "settings"}
    assert len(set(tags.ids)) == len(tags.ids)
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert "http://" not in text
    assert "https://" not in text
    assert tags.seen.count("script") == 0


def test_the_page_says_what_the_records_say(page, runs):
    text = page.read_text(encoding="utf-8")
    for name in ("stochastic", "exact", "conv", "numbers"):
        record = json.loads((runs / name / "record.json").read_text(encoding="utf-8"))
        assert f"{100 * record['result']['test_error']:.2f}%" in text
        assert f"{record['result']['parameters']:,}" in text
        assert record["commit"] in text
    for term in ("sparsity", "ridge", "coupling", "activation"):
        assert f">{term}</li>" in text
    assert text.count("<figcaption>Active units") == 4
    assert text.count("<figcaption>Bits flipped") == 4
    assert text.count("<figcaption>Objective by term") == 1
    assert "stochastic.keep" in text


def test_evaluation_is_of_the_test_part(runs):
    split, network = load_data("digits"), load(runs / "stochastic/model.safetensors")
    part = known_part(*split.test, network.classes, network.n_features, network.dtype)
    found = evaluate(network, part, split, "test")
    predicted = network.predict(split.test[0])
    expected = np.zeros((10, 10), dtype=int)
    np.add.at(expected, (split.test[1], predicted), 1)
    assert found.confusion == expected.tolist()
    wrong = np.flatnonzero(predicted != split.test[1])
    assert {m["sample"] for m in found.mistakes} <= set(wrong)
    assert len(found.mistakes) == min(24, len(wrong))
    surest = network.predict_proba(split.test[0]).max(axis=1)[wrong].max()
    assert found.mistakes[0]["probability"] == pytest.approx(surest)
    assert [m["probability"] for m in found.mistakes] == sorted(
        (m["probability"] for m in found.mistakes), reverse=True
    )
    first = found.mistakes[0]
    truth, guess = split.test[1][first["sample"]], predicted[first["sample"]]
    assert (first["truth"], first["guess"]) == (str(truth), str(guess))


def test_many_classes_are_listed_not_tabled(tmp_path):
    confusion = np.zeros((21, 21), dtype=int)
    confusion[3, 4], confusion[7, 1] = 5, 9
    np.fill_diagonal(confusion, 100)
    found = Evaluation("test", [f"class {k}" for k in range(21)], confusion.tolist(), [])
    assert found.frequent == [("class 7", "class 1", 9), ("class 3", "class 4", 5)]
    np.savez(tmp_path / "mine.npz", X=np.eye(42), y=np.arange(42) % 21)
    split = load_data(str(tmp_path / "mine.npz"))
    settings = TrainSettings.from_options(hidden=(4,), epochs=1)
    train(split.X, split.y, settings, name=str(tmp_path / "mine.npz"), out=tmp_path / "run")
    text = write_report([tmp_path / "run"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<p>The most frequent in the train part.</p>" in text


def test_a_chart_has_gaps_where_there_is_no_number():
    values = [None, 5.0, 1e308, 1e-320, 0.0, 7.0]
    for log in (False, True):
        chart = line_chart([Line("any", values), Line("none", [None] * 6)], log=log)
        svg = base64.b64decode(chart.partition("base64,")[2]).decode()
        assert svg.count("<use") > 3
        assert "nan" not in svg


def test_a_record_alone_has_curves_and_says_what_is_missing(runs, tmp_path):
    record = tmp_path / "record.json"
    record.write_bytes((runs / "stochastic/record.json").read_bytes())
    text = write_report([record], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "There is no model beside the record." in text
    assert "<h2>Curves</h2>" in text
    assert "<h2>Confusions</h2>" not in text
    assert "mistakes are not shown" in text
    beside = write_report([runs / "stochastic/record.json"], tmp_path / "page.html")
    assert "<h2>Confusions</h2>" in beside.read_text(encoding="utf-8")


def moved(runs, folder, change):
    """A copy of a run whose record was changed."""
    folder.mkdir()
    record = json.loads((runs / "stochastic/record.json").read_text(encoding="utf-8"))
    change(record)
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    (folder / "model.safetensors").write_bytes((runs / "stochastic/model.safetensors").read_bytes())
    return folder


def test_pretraining_has_a_line_and_settings(runs, tmp_path):
    digits = load_data("digits")
    train_on_backbone(
        digits.X,
        digits.y,
        PretrainingSettings("tiny", epochs=1, batch=100),
        TrainSettings.from_options(hidden=(8,), epochs=1, batch=100),
        test=digits.test,
        image=digits.shape,
        name="digits",
        out=tmp_path / "on-backbone",
    )
    paths = [runs / "numbers", tmp_path / "on-backbone"]
    text = write_report(paths, tmp_path / "page.html").read_text(encoding="utf-8")
    record = json.loads((tmp_path / "on-backbone/record.json").read_text(encoding="utf-8"))
    line = text.split("on-backbone: pretraining</th>")[1].split("</tr>")[0]
    assert text.count("pretraining</th>") == 1
    assert percent(record["initial"]["result"]["test_error"]) in line
    assert f"{record['initial']['result']['parameters']:,}" in line
    assert "by Adam: 1 epochs" in line
    assert "initial.rival.body" in text
    Tags().feed(text)


def test_without_a_test_part_the_validation_part_is_evaluated(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    np.savez(tmp_path / "mine.npz", X=X, y=(X[:, 0] > 0).astype(int))
    split = load_data(str(tmp_path / "mine.npz"))
    settings = TrainSettings.from_options(hidden=(8,), epochs=3, validation=0.2)
    train(split.X, split.y, settings, name=split.name, out=tmp_path / "run")
    mine = str(tmp_path / "mine.npz")
    page = write_report([tmp_path / "run"], tmp_path / "page.html", data=[mine]).read_text()
    assert "holds other samples" not in page
    assert "validation" in page


def test_without_the_data_the_rest_is_shown(runs, tmp_path):
    folder = moved(runs, tmp_path / "run", lambda record: record["data"].update(name="gone.npz"))
    text = write_report([folder], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Its data were not found: there is no data file gone.npz" in text
    again = write_report([folder], tmp_path / "page.html", data=["digits"])
    assert "<h2>Confusions</h2>" in again.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="takes 64 features, the data have 30"):
        write_report([folder], tmp_path / "page.html", data=["breast-cancer"])
    with pytest.raises(InputError, match="once or once a run: 3 for 2 runs"):
        write_report([folder] * 2, tmp_path / "page.html", data=["digits"] * 3)


def test_other_data_of_the_same_name_are_not_evaluated(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digits = load_data("digits")
    np.savez("digits.npz", X=digits.X[:, ::-1], y=digits.y)
    train(
        digits.X[:, ::-1],
        digits.y,
        TrainSettings.from_options(hidden=(8,), epochs=1, batch=100),
        name="digits",
        out=tmp_path / "own",
    )
    text = write_report([tmp_path / "own"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "digits holds other samples or labels than those of the run" in text
    found = write_report([tmp_path / "own"], tmp_path / "page.html", data=["digits.npz"])
    text = found.read_text(encoding="utf-8")
    assert "Samples of the train part" in text
    with pytest.raises(InputError, match="other samples or labels"):
        write_report([tmp_path / "own"], tmp_path / "page.html", data=["digits"])


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("machine"),
        lambda record: record.update(result=None),
        lambda record: record["result"].pop("operations"),
        lambda record: record["result"].update(parameters=None),
        lambda record: record["history"][1].pop("iteration"),
        lambda record: record.update(history=[]),
        lambda record: record.update(initial={"result": {}, "settings": {}, "n_iter": 1}),
        lambda record: record.update(initial="none"),
        lambda record: record.update(plan="none"),
        lambda record: record["data"].update(samples=None),
    ],
)
def test_records_that_are_not_whole(runs, tmp_path, change):
    with pytest.raises(InputError, match="not the whole record of a training run"):
        write_report([moved(runs, tmp_path / "run", change)], tmp_path / "page.html")


def test_what_is_no_number_is_a_gap(runs, tmp_path):
    def change(record):
        record["history"][1].update(loss=None, flipped=[None, 0.1], test_error=None)
        record["history"][2].update(loss=1e308, flipped=[])
        record["settings"]["seed"] = "<script>"
        del record["commit"]

    folder = moved(runs, tmp_path / "run", change)
    text = write_report([folder], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in text


def test_settings_show_what_was_chosen(runs, tmp_path):
    text = write_report([runs / "stochastic"], tmp_path / "page.html").read_text(encoding="utf-8")
    rows = dict(re.findall(r'<th scope="row">([\w.]+)</th><td>(.*?)</td>', text))
    assert (rows["stochastic.epochs"], rows["plan.epochs"]) == ("4", "4")
    assert rows["stochastic.keep"] == "0.6"
    assert rows["patience"] == "default"
    assert rows["machine.threads"] == "1"
    assert "None" not in rows.values()


@pytest.mark.parametrize("package", ["jinja2", "matplotlib", "PIL"])
def test_without_an_extra_the_message_says_what_to_install(runs, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'zeroone-nn\[pages\]'"):
        write_report([runs / "stochastic"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_names_are_not_markup(runs, tmp_path):
    folder = tmp_path / "<b>&amp;"
    folder.mkdir()
    (folder / "record.json").write_bytes((runs / "exact/record.json").read_bytes())
    text = write_report([folder], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>&amp;" not in text.replace("<b>&amp;</b>", "")
    assert "&lt;b&gt;&amp;amp;" in text


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no record"),
        ("{", "is not a readable record"),
        ('{"schema": 1}', "is not the whole record of a training run|not a record of this version"),
    ],
)
def test_what_is_no_run(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "record.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=sentence):
        write_report([tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_the_page_in_a_browser(page, width, dark):
    with browser(width=width, dark=dark) as driver:
        driver.get(page.as_uri())
        assert complaints(driver) == []
        assert requests(driver) == []
        shown = driver.execute_script(
            "return [...document.querySelectorAll('.chart img')]"
            ".map(image => image.getBoundingClientRect().width)"
        )
        assert len(shown) == 11
        assert min(shown) > 250
        images = "return [...document.images].every(i => i.complete && i.naturalWidth > 0)"
        assert driver.execute_script(images)
        across = "return [document.documentElement.scrollWidth, window.innerWidth]"
        needed, there = driver.execute_script(across)
        assert needed <= there  # nothing sticks out to the side, on a phone either
        clipped = (
            "return [...document.querySelectorAll('#confusions .wide')]"
            ".map(box => box.scrollWidth - box.clientWidth)"
        )
        assert max(driver.execute_script(clipped)) <= 0
        tops = driver.execute_script(
            "return [...document.querySelectorAll('#confusions article')]"
            ".map(box => box.getBoundingClientRect().top)"
        )
        assert len(set(tops[:3])) == (1 if width == 1200 else 3)  # ten classes each, side by side
        back = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")

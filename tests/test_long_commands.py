"""Every command of the documents that takes minutes to hours runs on tiny data, word for word."""

import importlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from benchmarks import accuracy, small_data, zoo
from test_docs import PAGES, ROOT
from test_examples import make_tones
from tiny_world import shrink_benchmarks, shrink_data, shrink_matrices, shrink_options
from zeroone.cli import app

STARTS = r"(?:zeroone|python|pytest|make|pip|torchrun|apt-get|pre-commit|git|gcc|source|\./)"
LINE = re.compile(rf"^    ({STARTS}(?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
INLINE = re.compile(rf"`({STARTS}\s[^`]+)`")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PATTERN = re.compile(r"\b[A-Z]{3,}\b|X\.Y\.Z|\.\.\.|\[--|\|")  # not to be typed as it stands
ELSEWHERE = {  # what runs these commands, or why nothing does
    "python examples/make_speech.py speech": "test_examples.py::test_speech",
    "python examples/speech.py speech": "test_examples.py::test_speech",
    "gcc -std=c99 -Os -o check main.c digits.c": "test_docs.py::test_pages_run",
    "./check < samples.bin | diff - labels.txt && echo agree": "the same",
    "gcc -Os": "a compiler's option in a sentence",
    "torchrun --max-restarts 3": "an option in a sentence; utils/test_parallel.py restarts ranks",
    "python -m build": ".ci/wheel_test.py builds the wheel",
    "python -m twine upload dist/*": "uploads a release",
    'git tag -a vX.Y.Z -m "zeroone X.Y.Z"': "tags a release",
    "apt-get install espeak-ng": "installs a system package",
    "pip install pre-commit": "downloads a package",
    "pre-commit install": "changes the hooks of the clone",
    "source .venv/bin/activate": "changes the shell",
    "python benchmarks/zoo.py runs/zoo --record results/zoo.json": "test_the_zoo_is_made",
    "make run": "of examples/microcontroller; deploy/test_microcontroller.py runs it",
    "python benchmarks/robustness.py --json results/robustness.json --page docs/robustness.md": (
        "half an hour; benchmarks/test_robustness.py runs its parts"
    ),
}


def commands():
    """Return the commands of all pages, each once."""
    found = {}
    for page in PAGES:
        text = FENCED.sub("", page.read_text(encoding="utf-8"))
        for command in (*LINE.findall(text), *INLINE.findall(text)):
            plain = re.sub(r"\s+#.*", "", command.replace("\\\n", " "))
            found.setdefault(" ".join(plain.split()))
    return [command for command in found if command not in ELSEWHERE]


COMMANDS = commands()
LONG = [
    c
    for c in COMMANDS
    if re.match("zeroone (bench|matrix|reproduce) ", c) and not PATTERN.search(c)
]
SHORT = [c for c in COMMANDS if c.startswith("zeroone ") and c not in LONG]
PYTHON, PYTEST, MAKE, PIP, RANKS = (
    [c for c in COMMANDS if c.startswith(f"{name} ")]
    for name in ("python", "pytest", "make", "pip", "torchrun")
)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Stand in a folder with the repository's scripts, in a world where everything is small."""
    shrink_data(monkeypatch)
    shrink_matrices(monkeypatch)
    shrink_options(monkeypatch)
    shrink_benchmarks(monkeypatch)
    for name in ("paper", "benchmarks", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("docs/images", "results"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", LONG)
def test_long_commands(command, tiny, line):
    code, out, err = command(*shlex.split(line)[1:])
    assert code == 0, err
    assert out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile
@pytest.mark.parametrize("line", PYTHON)
def test_python_commands(tiny, monkeypatch, capsys, line):
    if "speech" in line:
        make_tones(monkeypatch)
    run_python(monkeypatch, shlex.split(line)[1:])
    assert capsys.readouterr().out
    for record in re.findall(r"--json (\S+)", line):
        assert Path(record).stat().st_size > 100


def run_python(monkeypatch, words):
    """Run a script or a module of the repository in this process."""
    script, rest = words[0], words[1:]
    if script == "-m":
        script, *rest = rest
    monkeypatch.setattr(sys, "argv", [script, *rest])
    try:
        if script.startswith("benchmarks/"):
            importlib.import_module(script.removesuffix(".py").replace("/", ".")).main()
        elif script.endswith(".py"):
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module(script, run_name="__main__")
    except SystemExit as end:
        if str(end.code).startswith("not installed"):
            pytest.skip(str(end.code))
        assert not end.code, end.code  # noqa: PT017


def test_the_zoo_is_made(tiny, monkeypatch, capsys):
    """Run what the cards say, one after the other."""
    for name, path in (("FOLDER", "made"), ("CARDS", "made/cards.json")):
        monkeypatch.setattr(zoo, name, Path(path))
    Path("made").mkdir()
    for line in zoo.COMMANDS:
        run_python(monkeypatch, shlex.split(line)[1:])
    out = capsys.readouterr().out
    cards = json.loads(Path("made/cards.json").read_text(encoding="utf-8"))
    assert sorted(cards) == ["cifar10", "fashion-mnist", "mnist"]
    for name, card in cards.items():
        assert Path(f"made/{name}.safetensors").stat().st_size == card["bytes"]
        assert f"zoo/{name}: error {100 * card['test_error']:.2f}%" in out


def test_the_benchmarks_of_make(tiny, monkeypatch, capsys):
    """Run what ``make bench`` prints."""
    lines = [line for line in recipe("bench") if "python benchmarks/" in line]
    assert len(lines) > 3
    for line in lines:
        run_python(monkeypatch, shlex.split(line)[1:])


def recipe(*targets):
    """Return the commands that make would run for targets."""
    words = ["make", "--dry-run", "--no-print-directory", *targets]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("line", MAKE)
def test_targets_of_make(line):
    assert recipe(*line.split()[1:])


@pytest.mark.parametrize("line", PYTEST)
def test_tests_that_pages_name(line, pytestconfig):
    """These run for minutes: check that pytest knows the files and the options."""
    for word in line.split()[1:]:
        if word.startswith("--"):
            assert hasattr(pytestconfig.option, word[2:].partition("=")[0])
        else:
            assert (ROOT / word).is_file()


@pytest.mark.parametrize("line", PIP)
def test_pip_finds_what_it_is_told_to_install(line):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    words = shlex.split(line)[2:]
    if words[0] == "-c":
        assert (ROOT / words[1]).is_file()
        words = words[2:]
    (what,) = words
    wanted = Requirement(what.replace(".", project["name"], 1) if what.startswith(".") else what)
    assert wanted.name == project["name"]
    assert wanted.extras <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("line", RANKS)
def test_ranks(tmp_path, line):
    """Start the ranks as printed; a start-up file of Python gives them tiny data."""
    (tmp_path / "sitecustomize.py").write_text(
        "import pytest, tiny_world\ntiny_world.shrink_data(pytest.MonkeyPatch(), 2100)\n"
    )
    folders = [tmp_path, ROOT / "tests", ROOT, ROOT / "src"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    if "mnist-shards" in line:
        (shard,) = [c for c in SHORT if "--out mnist-shards" in c]
        run_here(f"{sys.executable} -m {shard}", tmp_path, environment)
    ranks = line.replace("torchrun", f"{sys.executable} -m torch.distributed.run", 1)
    run_here(ranks, tmp_path, environment)
    (out,) = re.findall(r"--out (\S+)", line)
    assert (tmp_path / out / "model.safetensors").is_file()


def run_here(line, folder, environment):
    done = subprocess.run(
        shlex.split(line), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", SHORT)
def test_commands_in_sentences_exist(line):
    """Find the command and its options; ``test_docs.py`` runs those on lines of their own."""
    command, rest = app, shlex.split(line)[1:]
    while isinstance(command, click.Group) and rest:
        _, command, rest = command.resolve_command(click.Context(command), rest)
    parameters = command.get_params(click.Context(command))
    known = {name for parameter in parameters for name in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_suites_in_sentences_exist():
    known = {*accuracy.SUITES, *small_data.SUITES}
    for page in PAGES:
        assert {*re.findall(r"--suite\s+([\w-]+)", page.read_text(encoding="utf-8"))} <= known


def test_every_command_has_a_test():
    assert set(COMMANDS) - {*LONG, *SHORT, *PYTHON, *PYTEST, *MAKE, *PIP, *RANKS} == set()

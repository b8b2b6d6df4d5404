"""Options are made from signatures and settings, and say what they mean."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import numpy as np
import pytest

from zeroone import ExactSettings
from zeroone.cli import COMMANDS, app
from zeroone.cli.options import documented, options_of
from zeroone.training import StochasticSettings, TrainSettings


def parameters(words):
    """The command of these words and its click parameters."""
    context, command = click.Context(app, info_name="zeroone"), app
    for word in words.split():
        command = command.commands[word]
        context = click.Context(command, info_name=word, parent=context)
    return command, command.get_params(context)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_an_example_and_every_option_a_text_of_its_own(words):
    command, found = parameters(words)
    assert f"zeroone {words}" in command.help.partition("Example: ")[2]
    assert "Args:" not in command.help
    texts = [option.help for option in found if isinstance(option, click.Option)]
    assert all(text.strip() and not text.startswith("[default") for text in texts)
    assert len({text.partition(" [default")[0] for text in texts}) == len(texts)


def test_every_setting_is_an_option():
    _, found = parameters("train")
    options = {option.name: option for option in found}
    kinds = {"float": click.FLOAT, "int": click.INT, "str": click.STRING, "bool": click.BOOL}
    for settings in (TrainSettings, StochasticSettings, ExactSettings):
        for field in fields(settings):
            if field.name in ("stochastic", "exact"):
                continue
            option = options[field.name]
            assert option.default is None
            kind = str(getattr(field.type, "__name__", field.type)).removesuffix(" | None")
            assert option.type is kinds.get(kind, click.STRING), field.name
            if field.default not in (None, "") and field.name != "hidden":
                assert f"[default: {field.default}]" in option.help
    order = [name for name in options if name in ("move", "head_step", "window", "damping")]
    assert order == ["move", "head_step", "window", "damping"]


def test_options_that_belong_together_stand_together():
    _, found = parameters("train")
    names = " ".join(option.name for option in found)
    assert names.startswith(
        "data label data_dir out resume overwrite preset pretraining_epochs backbone "
    )
    assert " hidden solver " in names
    assert names.index("epochs batch move") > names.index("seed")


def test_what_is_made_of_a_signature(capsys):
    def greet(
        names: tuple[str, ...],
        *,
        where: Path,
        from_: str = "here",
        often: int | None = None,
        loud: bool = False,
        also: tuple[str, ...] = (),
        quiet: bool = False,
    ) -> None:
        """Greet NAMES.

        Args:
            where: the place,
                in one or two words
            from_: said of ``from_``
            often: how often
        """
        print(names, where, from_, often, loud, also, quiet)

    assert documented(greet)["where"] == "The place, in one or two words."
    assert documented(greet)["from_"] == "Said of from_."
    assert documented(greet)["often"] == "How often."
    command = click.Command("greet", params=options_of(greet), callback=greet)
    words = ["a", "b", "--where", "x", "--from", "y", "--also", "1", "--also", "2", "--loud"]
    command.main(words, standalone_mode=False)
    assert capsys.readouterr().out == "('a', 'b') x y None True ('1', '2') False\n"
    for words, sentence in (
        (["a"], "Missing option '--where'."),
        (["--where", "x"], "Missing argument 'NAMES...'."),
    ):
        with pytest.raises(click.MissingParameter) as missing:
            command.main(words, standalone_mode=False)
        assert missing.value.format_message() == sentence


def test_completion_offers_files_and_options(command, monkeypatch):
    monkeypatch.setenv("_ZEROONE_COMPLETE", "bash_complete")
    for line, offered in (
        ("zeroone train --data mine", ["file,mine"]),
        ("zeroone train --pretraining-e", ["plain,--pretraining-epochs"]),
        ("zeroone bench train --rep", ["plain,--repeats"]),
    ):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert command()[1].split() == offered


BLOCKED = """
import sys
for name in ("matplotlib", "jinja2", "PIL", "onnx"):
    sys.modules[name] = None
import zeroone
from zeroone.cli import main
main()
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "--data", "own.csv", "--epochs", "1", "--quiet", "--out", "run"], None),
        (["train", "--data", "own.npz", "--epochs", "1", "--quiet", "--out", "run"], None),
        (["data", "show", "digits"], "this needs matplotlib: pip install 'zeroone-nn[plots]'."),
        (["demo"], "this needs matplotlib: pip install 'zeroone-nn[plots]'."),
    ],
)
def test_what_works_without_the_extras(tmp_path, words, sentence):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    np.savez(tmp_path / "own.npz", X=X, y=y)
    rows = [f"{a:.3f},{b:.3f},{kind}" for (a, b), kind in zip(X, y, strict=True)]
    (tmp_path / "own.csv").write_text("\n".join(["a,b,kind", *rows]))
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if sentence is None else 2), done.stderr
    assert done.stderr == ("" if sentence is None else f"zeroone: {sentence}\n")
    assert (tmp_path / "run/record.json").exists() == (sentence is None)

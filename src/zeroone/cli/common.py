"""What several commands do before they begin."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zeroone.utils.checks import InputError, count


def check_output(path: Path | None, *inputs: Path | str | None, ending: str | None = None) -> None:
    """Refuse what cannot be written, or would overwrite what is read; ``ending``: a needed one."""
    from zeroone.utils.storage import check_writable

    if path is None:
        return
    if ending is not None and path.suffix != ending:
        raise InputError(f"{path} should be a {ending} file.")
    taken = {file.resolve() for given in inputs if given is not None for file in _files(given)}
    if path.resolve() in taken:
        raise InputError(f"{path} is read by this command: write to another file.")
    check_writable(path)


def _files(given: Path | str) -> list[Path]:
    """What a command may read of it: of a run's folder, its files."""
    path = Path(given)
    return [path, path / "model.safetensors", path / "record.json", path.parent / "record.json"]


def model_file(model: Path) -> Path:
    """The file of a model, or that in a run's folder."""
    return model / "model.safetensors" if model.is_dir() else model


def load_model(model: Path) -> Any:
    """The network in a file or in a run's folder; one of integers runs as such."""
    from zeroone.deploy import load

    return load(model_file(model))


def as_widths(text: str) -> list[int]:
    """Widths of hidden layers with commas between them."""
    try:
        return [count("every width", int(width), most=10**6) for width in text.split(",")]
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--hidden takes widths such as 300,300, got {text!r}.") from None


def as_numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"{option} takes numbers such as 0,0.1,0.2, got {text!r}.") from None


def set_threads(threads: int | None) -> None:
    """As many CPU threads, if it was asked for."""
    if threads is not None:
        import torch

        torch.set_num_threads(count("threads", threads, most=1024))


@contextmanager
def repository_needed(command: str) -> Iterator[None]:
    """Around the imports of a command that uses ``paper/``, which the wheel does not hold."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "paper":
            raise
        raise InputError(
            f"zeroone {command} needs the repository: clone it and run 'make demo' there first."
        ) from None


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make the folder before hours of work depend on it; leave no empty one behind a failure."""
    from zeroone.utils.storage import make_folder

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    try:
        yield
    except BaseException:
        for path in made:
            if path.exists() and not any(path.iterdir()):
                path.rmdir()
        raise

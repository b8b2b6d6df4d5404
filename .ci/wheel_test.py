"""Build the wheel, install it in a fresh environment, and use it there.

The environment has the core dependencies only, so the script fails when the package imports an
optional one where it should not. Extra arguments go to ``pip install``.

    python .ci/wheel_test.py
"""

import os
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Command lines that must succeed, in this order.
WORKS = (
    "zeroone --version",
    "zeroone train --data samples.csv --label kind --hidden 16 --epochs 3 --out run --quiet",
    "zeroone evaluate run --data samples.csv",
    "zeroone predict run --data samples.csv",
    "zeroone export run --to c --out model.c",
    "zeroone export zoo/mnist --to c --out zoo.c",
)

# Command lines that need an extra, with its name: they must say how to install it.
NEEDS_EXTRA = {
    "zeroone train --data pictures --out other": "images",
    "zeroone export run --to onnx --out model.onnx": "onnx",
}


def main() -> None:
    """Run every step in a temporary folder; the first failure ends the script."""
    with tempfile.TemporaryDirectory(prefix="zeroone-wheel-") as name:
        folder = Path(name)
        python = install(folder, sys.argv[1:])
        run([python, str(ROOT / ".ci/wheel_program.py")], folder)
        for line in WORKS:
            run(command(python, line), folder)
        for kind in ("cat", "dog"):
            (folder / "pictures" / kind).mkdir(parents=True)
            (folder / "pictures" / kind / "1.png").touch()
        for line, extra in NEEDS_EXTRA.items():
            refuses(command(python, line), folder, f"pip install 'zeroone-nn[{extra}]'")
    print("The wheel works with the core dependencies alone.")


def install(folder: Path, options: list[str]) -> str:
    """Build and install the wheel; return the Python of the new environment."""
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", "dist", str(ROOT)], folder)
    (wheel,) = (folder / "dist").glob("zeroone_nn-*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv/bin/python")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    run([python, *pip, "install", *constraints, *options, str(wheel)], folder)
    return python


def command(python: str, line: str) -> list[str]:
    """Split a command line into words, with the script of the new environment."""
    script, *words = shlex.split(line)
    return [str(Path(python).with_name(script)), *words]


def environment() -> dict[str, str]:
    """Return the environment variables without PYTHONPATH, which may name the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(words: list[str], folder: Path) -> None:
    """Run a command that must succeed."""
    print("$", shlex.join(words), flush=True)
    subprocess.run(words, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)


def refuses(words: list[str], folder: Path, sentence: str) -> None:
    """Run a command that must end with exit code 2 and say ``sentence``."""
    print("$", shlex.join(words), flush=True)
    done = subprocess.run(
        words, cwd=folder, env=environment(), check=False, capture_output=True, text=True
    )
    if done.returncode != 2 or sentence not in " ".join(done.stderr.split()):
        sys.exit(f"exit code {done.returncode}, expected 2 and {sentence!r}:\n{done.stderr}")


if __name__ == "__main__":
    main()

"""Lists of files and tests agree with what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_tree_has_every_package_and_no_other():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"^```text\nsrc/zeroone/\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(tree.splitlines()) <= 40
    named, package = set(), Path()
    for line in tree.splitlines():
        indent, name = re.fullmatch(r"( +)(\S+)  .+", line).groups()
        package = package if len(indent) > 2 else Path(name)
        path = package / name if len(indent) > 2 else package
        assert (ROOT / "src/zeroone" / path).exists(), path
        if name.endswith("/") and len(indent) == 2:
            named.add(package.name)
    folders = (ROOT / "src/zeroone").iterdir()
    assert named == {path.name for path in folders if any(path.glob("*.py"))}


def test_every_slow_test_exists():
    for entry in (ROOT / "tests/slow_tests.txt").read_text(encoding="utf-8").split():
        file, _, name = entry.partition("::")
        assert (ROOT / "tests" / file).is_file(), f"remove or rename {entry}"
        assert f"def {name}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), entry

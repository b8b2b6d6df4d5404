"""Lines of a matrix that someone changed: they count, or one sentence says that they do not."""

import json
import random

from runs_made_up import filled, write_lines

from paper.matrix.matrix import Matrix
from paper.matrix.record_file import FILE
from paper.matrix.tables import summarise
from tampering import outcome, tampered


def test_a_line_counts_or_does_not(spec, tmp_path, pytestconfig):
    n = 3000 if pytestconfig.getoption("--thorough") else 200
    filled(spec, tmp_path)
    lines = (tmp_path / FILE).read_text(encoding="utf-8").splitlines()
    ends = {"done": 0, "refused": 0}

    def read(said):
        matrix = Matrix.open(spec.runs(), tmp_path, said.append)
        matrix.check_data("digits", "0")
        assert summarise(matrix)
        assert matrix.log() is not None

    for seed in range(n):
        rng, said = random.Random(seed), []
        changed = dict(enumerate(map(json.loads, lines)))
        k = rng.randrange(len(lines))
        changed[k] = tampered(changed[k], rng)
        write_lines(tmp_path, changed)
        ends[outcome(lambda: read(said), seed)] += 1  # noqa: B023
        assert all("\n" not in sentence for sentence in said)
    assert ends["done"] > n / 2

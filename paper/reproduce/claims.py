"""The paper's claims, each with a verdict from our own records.

A verdict needs all planned records and at least three seeds: methods are compared seed by seed, and
a difference counts if its 95% confidence interval is beyond 0, or beyond the margin that a claim
names. What confirms must hold for every difference, each alone; what refutes may be any of them, so
that its interval is corrected for their number (see ``differences``). The paper's row is judged;
what our default does stands beside it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from paper.reproduce.comparison import PAPERS_ROW, percent
from paper.reproduce.differences import (
    FEWEST,
    Difference,
    Row,
    by_seed,
    difference,
    rise_by_seed,
)
from paper.reproduce.results import Results

OURS = (PAPERS_ROW, "bcd", "bcd-hardmax")
CONFIRMED, REFUTED, OPEN, INCOMPLETE = "confirmed", "refuted", "undecided", "incomplete"
MUCH = 1.25  # by which factor a parameter that "does not matter much" may raise an error
NO_LOSS = 0.001  # points of error (as a share) that are no loss
PARTS = ("train_error", "test_error")
IMAGES = ("shirt", "pullover")  # the paper's; the first two of the protocol's
Everything = dict[str, Results]
Judged = tuple[str, str]  # verdict, numbers


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds, and the numbers that say so."""

    claim: str
    verdict: str
    evidence: str


def judge(results: Everything) -> list[Verdict]:
    """One verdict a claim; of those whose records are missing, which are."""
    verdicts = []
    for claim, names, test in CLAIMS:
        missing = [name for name in names if name not in results or not results[name].rows_done]
        if missing:
            verdicts.append(Verdict(claim, INCOMPLETE, f"no records of {', '.join(missing)}"))
            continue
        own = [results[name] for name in names]
        verdict, evidence = test(own)
        lacking = sum(len(r.lacking) for r in own)
        if lacking and not (claim in OF_PARAMETERS and _diverged(own[0])):
            total = sum(r.planned for r in own)
            verdict = INCOMPLETE
            evidence = f"{lacking} of {total} cells are missing; so far: {evidence}"
        verdicts.append(Verdict(claim, verdict, evidence))
    return verdicts


def _lowest_error(margin: float = 0.0) -> Callable[[list[Results]], Judged]:
    """Clearly below every rival, or at most so far above; not, if one is clearly further below."""

    def test(results: list[Results]) -> Judged:
        (r,) = results
        mine, rivals = r.row(PAPERS_ROW), _rivals(r)
        if mine is None or not rivals:
            return OPEN, "no such rows"
        gaps = [difference(by_seed(mine), by_seed(row), of=len(rivals)) for row in rivals]
        evidence = f"{_named(mine)} against {_nearest(rivals, gaps)}{_beside(r)}{_caveat(r)}"
        return _decide(gaps, margin), evidence

    return test


def _decide(gaps: Iterable[Difference], margin: float = 0.0) -> str:
    """Whether all gaps are below the margin; not, if one is above."""
    gaps = list(gaps)
    if all(gap.is_within(margin) for gap in gaps):
        return CONFIRMED
    return REFUTED if any(gap.is_beyond(margin) for gap in gaps) else OPEN


def _smallest(results: list[Results]) -> Judged:
    """Fewer units, parameters and operations than every rival, and no loss against any.

    The units are asked for, so that their number is no finding: the loss is.
    """
    verdicts, evidence = [], []
    for r in results:
        mine, rivals = r.row(PAPERS_ROW), _rivals(r)
        if mine is None or not rivals:
            verdicts.append(OPEN)
            evidence.append(f"{r.protocol.name}: no such rows")
            continue
        number = len(rivals) * len(results)
        gaps = [difference(by_seed(mine), by_seed(row), of=number) for row in rivals]
        fewest = all(
            ours < theirs
            for row in rivals
            for ours, theirs in zip(_sizes(mine), _sizes(row), strict=True)
        )
        verdicts.append(_decide(gaps, NO_LOSS) if fewest else REFUTED)
        units, parameters, operations = _sizes(mine)
        least = (min(sizes) for sizes in zip(*map(_sizes, rivals), strict=True))
        evidence.append(
            f"{r.protocol.name}: {units:,.0f} units, {parameters:,.0f} parameters, "
            f"{operations:,.0f} operations against {', '.join(f'{s:,.0f}' for s in least)} at "
            f"least, error {percent(mine['test_error'])}% against {_nearest(rivals, gaps)}"
            f"{_beside(r)}"
        )
    share = (
        "how many units it keeps is asked for (`keep`), what it loses by that is measured (not on "
        "CIFAR, of which there is one seed)"
    )
    return _together(verdicts), f"{share}: {'; '.join(evidence)}"


def _robust(results: list[Results]) -> Judged:
    """In every noise a smaller rise above the clean error than ReLU's; not, if one is larger."""
    (r,) = results
    mine, relu = r.row(PAPERS_ROW), r.row("relu")
    if mine is None or relu is None or "noise" not in mine or "noise" not in relu:
        return OPEN, "no such rows"
    levels, gaps = mine["noise"]["levels"], _rises(mine, relu)
    evidence = "; ".join(
        f"noise {levels[k]:g}: {percent(mine['noise']['errors'][k])}% against "
        f"{percent(relu['noise']['errors'][k])}%, rise minus ReLU's {gap}"
        for k, gap in gaps.items()
    )
    others = [
        f"{row['label']} "
        + ", ".join(f"{100 * gap.mean:+.2f}" for gap in _rises(row, relu).values())
        for row in r.rows_done
        if row["method"] not in {PAPERS_ROW, "relu"} and "noise" in row
    ]
    beside = f". Mean rises minus ReLU's of the others: {'; '.join(others)}" if others else ""
    return _decide(gaps.values()), f"{mine['label']} against ReLU at {evidence}{beside}"


def _rises(row: Row, reference: Row) -> dict[int, Difference]:
    """By the index of the level: how much more an error rises in noise than that of another row."""
    noisy = [k for k, level in enumerate(row["noise"]["levels"]) if level > 0]
    mine, its = ({k: rise_by_seed(each, k) for k in noisy} for each in (row, reference))
    return {k: difference(mine[k], its[k], of=len(noisy)) for k in noisy}


def _single_images(results: list[Results]) -> Judged:
    """The class of the first images (those of the claim) is that without noise at every level.

    One image says little: the claim is refuted if most seeds, of one of them, speak against it.
    """
    (r,) = results
    kept = {method: _kept_up_to(r, method) for method in (PAPERS_ROW, "bcd", "relu")}
    mine = kept[PAPERS_ROW]
    if not mine:
        return OPEN, "no such rows"
    largest = r.protocol.spec.noise[-1]
    evidence = "; ".join(
        f"{r.protocol.spec.known_methods[method].label}: "
        + ", ".join(
            f"{name} {', '.join(f'{level:g}' for level in reached)}"
            for name, reached in zip(IMAGES, zip(*runs, strict=True), strict=True)
        )
        for method, runs in kept.items()
        if runs
    )
    shares = [
        sum(level == largest for level in reached) / len(reached)
        for reached in zip(*mine, strict=True)
    ]
    verdict = CONFIRMED if min(shares) == 1 else REFUTED if min(shares) < 0.5 else OPEN
    if len(mine) < FEWEST:
        verdict = OPEN
    return verdict, (
        f"the noise up to which its class is that without noise, of at most {largest:g} (the "
        f"levels are ours: the paper prints none), by seed: {evidence}"
    )


def _kept_up_to(r: Results, method: str) -> list[list[float]]:
    """By seed: of each of the claim's images, the level up to which noise leaves its class."""
    runs = [run["result"] for run in r.runs(r.protocol.spec.architectures[0], method)]
    found = []
    for looked in (result["images"] for result in runs if "images" in result):
        leads = np.argmax(looked["probabilities"], axis=2)
        same = np.logical_and.accumulate(leads == leads[0])[:, : len(IMAGES)]
        found.append([looked["levels"][n - 1] for n in same.sum(axis=0)])
    return found


def _initial(results: list[Results]) -> Judged:
    """For every method: from 0 to 1 epochs the errors fall, and by more than they change after."""
    number = 2 * len(PARTS) * sum(len(r.protocol.spec.methods) for r in results)
    gaps: dict[str, Difference] = {}
    evidence = []
    for r in results:
        for method in r.protocol.spec.methods:
            rows = {epochs: row for epochs, row in r.by_initial_epochs(method).items() if row["n"]}
            if not {0, 1} <= rows.keys() or len(rows) < 3:
                return OPEN, "too few epochs are recorded"
            name = f"{r.protocol.name}, {rows[0]['label']}"
            for part in PARTS:
                none, one, last = (by_seed(rows[e], part) for e in (0, 1, max(rows)))
                after = {s: one[s] + abs(one[s] - last[s]) for s in one.keys() & last.keys()}
                what = f"{name}, {part.replace('_', ' ')}"
                gaps[f"{what}, 1 epoch minus none"] = difference(one, none, of=number)
                gaps[f"{what}, the same plus the change after"] = difference(after, none, of=number)
            if method in OURS or method == "relu":
                shown = ", ".join(f"{100 * _error(rows[e]):.2f}%" for e in sorted(rows))
                evidence.append(f"{name}: {shown}")
    least = max(gaps, key=lambda name: gaps[name].high)
    numbers = (
        f"test error after 0, 1, ... epochs, {'; '.join(evidence)}; of {number} differences of "
        f"training and test errors, {sum(gap.is_within() for gap in gaps.values())} are clearly "
        f"below 0; the least clear: {least}, {gaps[least]}"
    )
    return _decide(gaps.values()), numbers


def _parameters(base_method: str, what: str) -> Callable[[list[Results]], Judged]:
    """No change of a setting makes training diverge or raises the error by more than a quarter."""

    def test(results: list[Results]) -> Judged:
        (r,) = results
        base, diverged = r.row(base_method), _diverged(r)
        if diverged:
            return REFUTED, f"training diverges with {', '.join(diverged)}"
        changed = [row for row in r.rows_done if row["method"] != base_method]
        if base is None or not changed:
            return OPEN, "no such rows"
        limit = {seed: MUCH * error for seed, error in by_seed(base).items()}
        gaps = [difference(by_seed(row), limit, of=len(changed)) for row in changed]
        times = (f"{row['label']} {_error(row) / _error(base):.2f}" for row in changed)
        evidence = (
            f"{what}, error as a multiple of that of {_named(base)}: {'; '.join(times)}. Much is "
            f"more than {MUCH:g}; beyond that, {_nearest(changed, gaps)}"
        )
        return _decide(gaps), evidence

    return test


def _diverged(r: Results) -> list[str]:
    """What failed by its own doing, other than for want of memory, say."""
    records = [(cell, r.matrix.records[cell]) for cell in r.matrix.failed]
    methods = dict.fromkeys(cell.method for cell, record in records if "traceback" not in record)
    return [r.protocol.spec.known_methods[method].label for method in methods]


def _nearest(rows: list[Row], gaps: list[Difference]) -> str:
    """The row that speaks most against the claim, and by how much: the gap that decides."""
    decides = max(range(len(rows)), key=lambda k: (gaps[k].lowest, gaps[k].mean))
    if not gaps[decides].is_beyond():  # nothing does: the largest
        decides = max(range(len(rows)), key=lambda k: gaps[k].mean)
    return f"{_named(rows[decides])}: {gaps[decides]}"


def _together(verdicts: list[str]) -> str:
    if REFUTED in verdicts:
        return REFUTED
    return OPEN if OPEN in verdicts else CONFIRMED


def _rivals(r: Results) -> list[Row]:
    return [row for row in r.rows_done if row["method"] not in OURS]


def _error(row: Row) -> float:
    return float(row["test_error"]["mean"])


def _sizes(row: Row) -> tuple[float, float, float]:
    """Units, parameters, operations."""
    return sum(row["active_units"]), row["parameters"], row["macs"] + row["additions"]


def _named(row: Row) -> str:
    return f"{row['label']} {percent(row['test_error'])}% (n = {row['n']})"


def _beside(r: Results) -> str:
    """What the default head does with all units; it is not the row that is judged."""
    row = r.row("bcd")
    return "" if row is None else f"; with the default head and all units: {_named(row)}"


def _caveat(r: Results) -> str:
    """What a reader of the errors has to know."""
    return f". {r.protocol.caveat}" if r.protocol.caveat else ""


OF_PARAMETERS = (
    '"the selections of these parameters would not impact BCD significantly"',
    "the same of the settings of stochastic BCD (which the paper does not have)",
)
CLAIMS: list[tuple[str, tuple[str, ...], Callable[[list[Results]], Judged]]] = [
    (
        "0/1 BCD has the lowest test error on MNIST with full batches (35 steps for all)",
        ("mnist",),
        _lowest_error(),
    ),
    (
        "0/1 BCD has the lowest test error on MNIST with batches of 256",
        ("mnist-256",),
        _lowest_error(),
    ),
    ("0/1 BCD has the lowest test error on Fashion-MNIST", ("fashion-mnist",), _lowest_error()),
    (
        "0/1 BCD is among the best on CIFAR-10, at most 0.14 points behind",
        ("cifar10",),
        _lowest_error(0.0014),
    ),
    (
        "0/1 BCD is among the best on CIFAR-100, at most 0.26 points behind",
        ("cifar100",),
        _lowest_error(0.0026),
    ),
    (
        "0/1 BCD has the fewest active nodes, parameters and operations, at no loss (0.1 points)",
        ("mnist", "mnist-256", "fashion-mnist"),
        _smallest,
    ),
    ("0/1 BCD is more robust to noise than ReLU", ("fashion-mnist",), _robust),
    (
        "noise does not change how 0/1 BCD classifies a shirt and a pullover (up to 0.5)",
        ("fashion-mnist",),
        _single_images,
    ),
    (
        "without an initial process errors are high; they fall steeply, then are steady",
        ("initial", "initial-256"),
        _initial,
    ),
    (
        OF_PARAMETERS[0],
        ("printed",),
        _parameters("sound", "of Algorithm 3 on digits, one parameter changed"),
    ),
    (
        OF_PARAMETERS[1],
        ("parameters",),
        _parameters("bcd", "of stochastic BCD, one setting halved or doubled"),
    ),
]

"""The paper's claims, each with a verdict from our own records.

A verdict needs all planned records and at least three seeds: methods are compared seed by seed, and
a difference counts if its 95% confidence interval (see ``differences``) is beyond 0, or beyond the
margin that a claim names. The paper's row is judged; what our default does stands beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from zeroone.reproduce.comparison import PAPERS_ROW, percent
from zeroone.reproduce.differences import Difference, Row, by_seed, difference, noise_by_seed
from zeroone.reproduce.results import Results

OURS = (PAPERS_ROW, "bcd", "bcd-hardmax")
CONFIRMED, REFUTED, OPEN, INCOMPLETE = "confirmed", "refuted", "undecided", "incomplete"
MUCH = 1.25  # by which factor a parameter that "does not matter much" may raise an error
NO_LOSS = 0.001  # points of error (as a share) that are no loss
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
        if lacking and not (test is _parameters and _diverged(own[0])):
            total = sum(r.planned for r in own)
            verdict = INCOMPLETE
            evidence = f"{lacking} of {total} cells are missing; so far: {evidence}"
        verdicts.append(Verdict(claim, verdict, evidence))
    return verdicts


def _lowest_error(results: list[Results]) -> Judged:
    """Clearly below every rival; not, if one of them is clearly below."""
    (r,) = results
    mine, rivals = r.row(PAPERS_ROW), _rivals(r)
    if mine is None or not rivals:
        return OPEN, "no such rows"
    gaps = [difference(by_seed(mine), by_seed(row), of=len(rivals)) for row in rivals]
    evidence = f"{_named(mine)} against {_nearest(rivals, gaps)}{_beside(r)}"
    if all(gap.is_lower for gap in gaps):
        return CONFIRMED, evidence
    return (REFUTED if any(gap.is_higher for gap in gaps) else OPEN), evidence


def _near_the_best(margin: float) -> Callable[[list[Results]], Judged]:
    """Not clearly further behind any rival than the paper's row was behind the best."""

    def test(results: list[Results]) -> Judged:
        (r,) = results
        mine, rivals = r.row(PAPERS_ROW), _rivals(r)
        if mine is None or not rivals:
            return OPEN, "no such rows"
        gaps = [difference(by_seed(mine), by_seed(row), of=len(rivals)) for row in rivals]
        evidence = f"{_named(mine)} against {_nearest(rivals, gaps)}{_beside(r)}"
        return _within(gaps, margin), evidence

    return test


def _within(gaps: list[Difference], margin: float) -> str:
    """Whether no gap is above the margin."""
    if all(gap.high <= margin for gap in gaps):
        return CONFIRMED
    return REFUTED if any(gap.low > margin for gap in gaps) else OPEN


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
        verdicts.append(_within(gaps, NO_LOSS) if fewest else REFUTED)
        units, parameters, operations = _sizes(mine)
        least = (min(sizes) for sizes in zip(*map(_sizes, rivals), strict=True))
        evidence.append(
            f"{r.protocol.name}: {units:,.0f} units, {parameters:,.0f} parameters, "
            f"{operations:,.0f} operations against {', '.join(f'{s:,.0f}' for s in least)} at "
            f"least, error {percent(mine['test_error'])}% against {_nearest(rivals, gaps)}"
        )
    share = "how many units it keeps is asked for (`keep`), what it loses by that is measured"
    return _together(verdicts), f"{share}: {'; '.join(evidence)}"


def _robust(results: list[Results]) -> Judged:
    """In every noise a smaller rise above the clean error than ReLU's; not, if one is larger."""
    (r,) = results
    mine, relu = r.row(PAPERS_ROW), r.row("relu")
    if mine is None or relu is None or "noise" not in mine or "noise" not in relu:
        return OPEN, "no such rows"
    levels = mine["noise"]["levels"]
    gaps = {
        level: difference(
            noise_by_seed(mine, k, rise=True),
            noise_by_seed(relu, k, rise=True),
            of=len(levels) - 1,
        )
        for k, level in enumerate(levels)
        if level > 0
    }
    evidence = "; ".join(
        f"noise {level:g}: {percent(mine['noise']['errors'][k])}% against "
        f"{percent(relu['noise']['errors'][k])}%, rise minus ReLU's {gaps[level]}"
        for k, level in enumerate(levels)
        if level > 0
    )
    evidence = f"{mine['label']} against ReLU at {evidence}"
    if all(gap.is_lower for gap in gaps.values()):
        return CONFIRMED, evidence
    return (REFUTED if any(gap.is_higher for gap in gaps.values()) else OPEN), evidence


def _initial(results: list[Results]) -> Judged:
    """For every method: from 0 to 1 epochs the error falls, and by more than it changes after."""
    number = 2 * sum(len(r.protocol.spec.methods) for r in results)
    gaps: dict[str, Difference] = {}
    evidence = []
    for r in results:
        for method in r.protocol.spec.methods:
            rows = {epochs: row for epochs, row in r.by_initial_epochs(method).items() if row["n"]}
            if not {0, 1} <= rows.keys() or len(rows) < 3:
                return OPEN, "too few epochs are recorded"
            name = f"{r.protocol.name}, {rows[0]['label']}"
            none, one, last = (by_seed(rows[epochs]) for epochs in (0, 1, max(rows)))
            after = {s: one[s] + abs(one[s] - last[s]) for s in one.keys() & last.keys()}
            gaps[f"{name}, 1 epoch minus none"] = difference(one, none, of=number)
            gaps[f"{name}, the same plus the change after"] = difference(after, none, of=number)
            if method in OURS or method == "relu":
                shown = ", ".join(f"{100 * _error(rows[e]):.2f}%" for e in sorted(rows))
                evidence.append(f"{name}: {shown}")
    least = max(gaps, key=lambda name: gaps[name].high)
    numbers = f"{'; '.join(evidence)}; least clear of {number} differences: {least}, {gaps[least]}"
    if all(gap.is_lower for gap in gaps.values()):
        return CONFIRMED, numbers
    return (REFUTED if any(gap.is_higher for gap in gaps.values()) else OPEN), numbers


def _parameters(results: list[Results]) -> Judged:
    """No setting, halved or doubled, diverges or raises the error by more than a quarter."""
    (r,) = results
    base, diverged = r.row("bcd"), _diverged(r)
    if diverged:
        return REFUTED, f"training diverges with {', '.join(diverged)}"
    changed = [row for row in r.rows_done if row["method"] != "bcd"]
    if base is None or not changed:
        return OPEN, "no such rows"
    worst, best = max(changed, key=_error), min(changed, key=_error)
    limit = {seed: MUCH * error for seed, error in by_seed(base).items()}
    gaps = [difference(by_seed(row), limit, of=len(changed)) for row in changed]
    evidence = (
        f"of stochastic BCD, one setting halved or doubled: from {_named(best)} to "
        f"{_named(worst)}, {_error(worst) / _error(base):.2f} times that of the defaults, "
        f"{_named(base)}; much is more than {MUCH:g} times; beyond that, "
        f"{_nearest(changed, gaps)}. "
        f"The printed parameters do not train at all ([E6](errata.md#e6))"
    )
    if any(gap.is_higher for gap in gaps):
        return REFUTED, evidence
    return (CONFIRMED if all(gap.is_lower for gap in gaps) else OPEN), evidence


def _diverged(r: Results) -> list[str]:
    """What failed by its own doing, other than for want of memory, say."""
    records = [(cell, r.matrix.records[cell]) for cell in r.matrix.failed]
    methods = dict.fromkeys(cell.method for cell, record in records if "traceback" not in record)
    return [r.protocol.spec.known_methods[method].label for method in methods]


def _nearest(rows: list[Row], gaps: list[Difference]) -> str:
    """The row that speaks most against the claim, and by how much: the gap that decides."""
    decides = max(range(len(rows)), key=lambda k: (gaps[k].is_higher, gaps[k].low, gaps[k].mean))
    if not gaps[decides].is_higher:  # nothing does: the largest
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


CLAIMS: list[tuple[str, tuple[str, ...], Callable[[list[Results]], Judged]]] = [
    ("0/1 BCD has the lowest test error on MNIST with full batches", ("mnist",), _lowest_error),
    (
        "0/1 BCD has the lowest test error on MNIST with batches of 256",
        ("mnist-256",),
        _lowest_error,
    ),
    ("0/1 BCD has the lowest test error on Fashion-MNIST", ("fashion-mnist",), _lowest_error),
    (
        "0/1 BCD is among the best on CIFAR-10, at most 0.14 points behind",
        ("cifar10",),
        _near_the_best(0.0014),
    ),
    (
        "0/1 BCD is among the best on CIFAR-100, at most 0.26 points behind",
        ("cifar100",),
        _near_the_best(0.0026),
    ),
    (
        "0/1 BCD has the fewest active nodes, parameters and operations, at no loss (0.1 points)",
        ("mnist-256", "fashion-mnist"),
        _smallest,
    ),
    ("0/1 networks are more robust to noise than ReLU networks", ("fashion-mnist",), _robust),
    (
        "without an initial process errors are high; they fall steeply, then are steady",
        ("initial", "initial-256"),
        _initial,
    ),
    (
        '"the selections of these parameters would not impact BCD significantly"',
        ("parameters",),
        _parameters,
    ),
]

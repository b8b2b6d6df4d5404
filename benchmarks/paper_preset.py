"""Erratum E6 as a record: the printed settings, and two variants of them, on digits.

The variants are the settings as printed, those with beta from the Lipschitz constant, so that F
cannot rise, and those with 50 steps of each W block and no pruning, too.
"""

from benchmarks.measure import begin, finish, parser
from zeroone.commands.console import print_results
from zeroone.data.load import load_data
from zeroone.training import TrainSettings, train

VARIANTS = {
    "as printed": {},
    "Lipschitz beta": {"beta": None},
    "Lipschitz beta, L=50, lam=0": {"beta": None, "pgm_steps": 50, "lam": 0.0},
}


def summary(record):
    """Return the result, and what moved over the whole run."""
    history = record["history"]
    return {
        **record["result"],
        "error_before": history[0]["test_error"],
        "largest_share_of_bits_flipped_in_a_sweep": max(max(e["flipped"]) for e in history[1:]),
        "largest_move_of_a_layer_in_a_sweep": max(max(e["moved"]) for e in history[1:]),
        "settings": record["settings"],
        "history": history,
    }


def main():
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--hidden", default="500,500")
    options = arguments.parse_args()
    record = begin("paper_preset", options)
    hidden = tuple(int(width) for width in options.hidden.split(","))
    data = load_data("digits")
    records = {}
    for name, changes in VARIANTS.items():
        settings = TrainSettings.from_options(preset="paper", hidden=hidden, **changes)
        records[name] = train(data.X, data.y, settings, test=data.test, name=data.name).record
    record["result"] = {name: summary(r) for name, r in records.items()}
    print_results(f"digits, {len(data.y)} training samples, printed settings", records)
    for name, result in record["result"].items():
        print(
            f"{name}: test error {100 * result['error_before']:.2f}% before, "
            f"{100 * result['test_error']:.2f}% after; at most "
            f"{100 * result['largest_share_of_bits_flipped_in_a_sweep']:.3f}% of the bits flipped "
            f"in a sweep, no layer moved by more than "
            f"{100 * result['largest_move_of_a_layer_in_a_sweep']:.3f}%"
        )
    finish(record, options.json)


if __name__ == "__main__":
    main()

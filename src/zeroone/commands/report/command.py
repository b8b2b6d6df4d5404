"""``zeroone report``: the command."""

from pathlib import Path

from zeroone.commands.checks import check_output, set_threads
from zeroone.utils.checks import need_extra, printable


def report(
    runs: tuple[Path, ...],
    *,
    out: Path = Path("report.html"),
    data: tuple[str, ...] = (),
    data_dir: Path | None = None,
    label: str | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> None:
    """Write one self-contained HTML page about one or several RUNS, side by side.

    A run is the folder of a training, or a record. The page shows curves, active units, flipped
    bits, confusions, the worst mistakes, the first layer's weights, noise, settings and the
    machine. It opens from the file system and makes no network requests.

    Example: zeroone report runs/digits runs/other --out report.html

    Args:
        out: the page.
        data: the data of the runs, if they have moved: once, or once for each run.
    """
    need_extra("pages", "jinja2")
    from zeroone.commands.report import write_report

    set_threads(threads)
    check_output(out, *runs, *data, ending=".html")
    write_report(runs, out, data=data, data_dir=data_dir, label=label, quiet=quiet)
    print(f"report: {printable(out)}")

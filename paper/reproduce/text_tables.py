"""Tables as text, in Markdown or LaTeX."""

import re
from dataclasses import dataclass, field

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "%": r"\%",
        "&": r"\&",
        "#": r"\#",
        "_": r"\_",
        "$": r"\$",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
    }
)


@dataclass(frozen=True)
class Entry:
    """An entry: its text, the letter of its note, and whether it is the best of its column."""

    text: str = ""
    mark: str = ""
    best: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table with notes, which the marks of entries refer to."""

    title: str
    headings: list[str]
    rows: list[list[Entry]]
    notes: dict[str, str] = field(default_factory=dict)  # by letter

    def markdown(self) -> str:
        """Write Markdown, with the title above and the notes below."""
        rule = ["---", *["---:"] * (len(self.headings) - 1)]
        rows = [[_in_markdown(entry) for entry in row] for row in self.rows]
        lines = [f"**{self.title}**", ""]
        lines += [f"| {' | '.join(row)} |" for row in (self.headings, rule, *rows)]
        if self.notes:
            lines += ["", *(f"{mark}) {note}.  " for mark, note in self.notes.items())]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """Write a LaTeX table that needs no package and fits a wide page."""
        lines = [
            r"\begin{table}\scriptsize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape(self.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.headings) - 1)}}}\hline",
            " & ".join(map(escape, self.headings)) + r" \\\hline",
            *(" & ".join(map(_in_latex, row)) + r" \\" for row in self.rows),
            r"\hline\end{tabular}",
        ]
        for mark, note in self.notes.items():
            plain = unlinked(note).replace("`", "")
            lines.append(rf"\par $^{{{mark}}}$ {escape(plain)}.")
        return "\n".join([*lines, r"\end{table}"]) + "\n"


def unlinked(text: str) -> str:
    """Replace Markdown links by their words, for a place from which they lead nowhere."""
    return re.sub(r"(?<!!)\[([^]]*)\]\([^)]*\)", r"\1", text)


def escape(text: str) -> str:
    """Escape text for LaTeX."""
    return text.translate(_LATEX)


def _in_markdown(entry: Entry) -> str:
    text = f"**{entry.text}**" if entry.best else entry.text
    return f"{text} {entry.mark})" if entry.mark else text


def _in_latex(entry: Entry) -> str:
    text = escape(entry.text)
    text = rf"\textbf{{{text}}}" if entry.best else text
    return rf"{text}$^{{{entry.mark}}}$" if entry.mark else text

"""``zeroone report``: training runs on one self-contained HTML page."""

from zeroone.commands.report.page import write_report

__all__ = ["write_report"]

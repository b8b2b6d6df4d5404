"""``zeroone report``: training runs on one self-contained page."""

from zeroone.report.page import write_report

__all__ = ["write_report"]

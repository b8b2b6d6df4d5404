"""Charts of the report: scales, gaps, escapes, and lines that coincide."""

import re

import pytest

from zeroone.commands.report.charts import Scale, Series, line_chart, ticks


def test_scales_and_ticks():
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0.13, 0.94) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    scale = Scale.fit([0.5, 50.0], log=True)
    assert scale.place(5.0) == pytest.approx(0.5)
    assert scale.ticks() == pytest.approx([1, 10])
    assert Scale.fit([0.5, 30.0], log=True).ticks() == pytest.approx([1, 10])
    assert Scale.fit([2.0, 60.0], log=True).ticks() == pytest.approx([2, 5, 10, 20, 50])
    assert len(Scale.fit([1e-8, 1e30], log=True).ticks()) < 8
    assert not Scale.fit([0.0, 50.0], log=True).log
    flat = Scale.fit([3.0, 3.0])
    assert 0 < flat.place(3.0) < 1
    assert Scale.fit([3.0, 4.0], zero=True).low == 0


def test_charts_leave_gaps_and_escape():
    values = [None, 5.0, 7.0, float("inf"), float("nan")]
    chart = line_chart("a<b", "x", "y", [Series("s&t", range(5), values)])
    assert chart.count("<circle") == 2
    assert line_chart("z", "x", "y", [Series("s", [0, 1], [0, 9])], log=True).count("<circle") == 1
    assert "a&lt;b" in chart
    assert "s&amp;t: 1, 5" in chart
    assert line_chart("none", "x", "y", [Series("s", [0], [None])]) == ""


def test_equal_lines_are_drawn_as_stripes():
    x = range(4)
    lines = [
        Series("first", x, [3, 3, 3, 1], 0),
        Series("second", x, [3, 3, 3, 2], 1),
        Series("third", x, [3, 3, 0, 0], 2),
    ]
    chart = line_chart("units", "epoch", "units", lines)
    halos = re.findall(r'<path class="(c\d)" stroke-width="(\d+)" d="(.*?)"/>', chart)
    assert [(colour, width, path.count("M")) for colour, width, path in halos] == [
        ("c0", "10", 2),  # two lines cover the first segment, one the second
        ("c1", "6", 1),
    ]
    assert "<path" not in line_chart("units", "epoch", "units", lines[:1])


def test_an_axis_of_zeros_has_no_negative_values():
    assert Scale.fit([0.0, 0.0], zero=True) == Scale(0.0, 1.0)

"""The names that ``zeroone`` exports: each can be imported and is documented."""

from pathlib import Path

import pytest

import zeroone

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


@pytest.mark.parametrize("name", sorted({*zeroone.__all__} - {"__version__", "nn", "optim"}))
def test_an_exported_name_is_there_and_documented(name):
    assert getattr(zeroone, name).__doc__
    assert f"::: zeroone.{name}\n" in PAGE.read_text(encoding="utf-8")


def test_other_names_are_not_there():
    assert dir(zeroone) == sorted(zeroone.__all__)
    with pytest.raises(AttributeError, match="module 'zeroone' has no attribute 'trian'"):
        zeroone.trian  # noqa: B018

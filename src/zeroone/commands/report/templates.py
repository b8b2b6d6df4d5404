"""The page's Jinja templates."""

from functools import cache
from typing import Any

from zeroone.training.text_progress import percent
from zeroone.utils.checks import InputError


@cache
def load_template(name: str) -> Any:
    """Load a template of this package, which escapes every value."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise InputError("a page needs jinja2: pip install 'zeroone[pages]'") from None
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"percent": percent, "count": "{:,.0f}".format}
    return environment.get_template(name)

"""The page's Jinja templates."""

from functools import cache
from typing import Any

from zeroone.training.text_progress import percent
from zeroone.utils.checks import need_extra


@cache
def load_template(name: str) -> Any:
    """Load a template of this package, which escapes every value."""
    jinja2 = need_extra("pages", "jinja2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"percent": percent, "count": "{:,.0f}".format}
    return environment.get_template(name)

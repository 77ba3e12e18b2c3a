"""Shows examples in docstrings as code: Markdown would read `>>>` as a quotation."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts the examples of every docstring into code fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for each object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)

"""A console for untrusted text: names of strategies, groups and files must not control the terminal."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fairlag.limits import printable


class SafeConsole(Console):
    """Prints text without control characters, except those that rich itself writes.

    >>> SafeConsole(width=80).print("fed\\x1b]0;title\\x07avg", soft_wrap=True)
    fed]0;titleavg
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Rich's output without control characters in the text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

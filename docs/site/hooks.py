"""What the site adds to docs/: pages from files elsewhere, links between them, and indices in formulas."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/quickstart.ipynb": "quickstart.md",
    "examples/flower": "examples/flower.md",
    "examples/flower/README.md": "examples/flower.md",
    "src/fairlag/rules": "api-rules.md",
    "src/fairlag/zoo": "api-zoo.md",
}
"""Where files and folders outside docs/ are shown; any other that a page links to gets a page below source/."""
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
VERBATIM = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<h\d.*?</h\d>|<[^>]*>)", re.DOTALL)
LETTER = r"[^\W⁰¹²³⁴-⁹]"  # the power of r_i² is not part of its index
SUBSCRIPT = re.compile(
    rf"\b(\w|[Σ∇]\w?|(?:soft)?max|spent|earned|held|cache)_(?:\{{([^}}]*)\}}|(max|{LETTER}{{1,2}}))(?!{LETTER})"
)
SUPERSCRIPT = re.compile(r"\^([−\w½]+(?:<sub>\w+</sub>)?)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    for path, uri in PAGES.items():
        if (ROOT / path).suffix in (".md", ".ipynb"):
            files.append(File.generated(config, uri, content=_text(ROOT / path)))
    linked = {path for file in files.documentation_pages() for path in _linked(file)}
    for path in sorted(path for path in linked if _uri(path) not in files.src_uris):
        files.append(File.generated(config, _uri(path), content=_source(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Points links to the pages of the site, and adapts numbered lists from GitHub's Markdown to Python's."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    origin = _origin(uri)

    def here(link: re.Match[str]) -> str:
        found = _found(origin, link[1])
        return link[0] if found is None else relpath(_uri(found), dirname(uri) or ".") + (link[2] or "")

    return _lists(LINK.sub(here, markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Formulas are plain text such as r_i and 2^128; the site shows their indices and powers."""
    return "".join(part if place % 2 else _indexed(part) for place, part in enumerate(VERBATIM.split(html)))


def _indexed(text: str) -> str:
    text = SUBSCRIPT.sub(lambda found: f"{found[1]}<sub>{found[2] or found[3]}</sub>", text)
    return SUPERSCRIPT.sub(r"<sup>\1</sup>", text)


def _origin(uri: str) -> Path:
    """The file that a page is made from."""
    path = next((path for path, shown in PAGES.items() if shown == uri and (ROOT / path).is_file()), f"docs/{uri}")
    return ROOT / path


def _found(origin: Path, target: str) -> str | None:
    """The path, below the root, of the file or folder that a link means."""
    path = (origin.parent / target).resolve()
    return path.relative_to(ROOT).as_posix() if path.exists() and path.is_relative_to(ROOT) else None


def _linked(file: File) -> Iterator[str]:
    origin = _origin(file.src_uri)
    found = (_found(origin, link[1]) for link in LINK.finditer(file.content_string))
    return (path for path in found if path is not None)


def _uri(path: str) -> str:
    """The page that shows a file."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def _text(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells)


def _source(path: str) -> str:
    """A file unchanged, or the names in a folder; the search skips it."""
    file = ROOT / path
    text = "\n".join(sorted(each.name for each in file.iterdir())) if file.is_dir() else file.read_text("utf-8")
    language = {".py": "python", ".toml": "toml"}.get(file.suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n`````{language}\n{text.rstrip()}\n`````\n"


def _lists(markdown: str) -> str:
    """On GitHub three spaces continue an item of a numbered list; Python's Markdown needs four."""
    lines, inside = [], False
    for line in markdown.split("\n"):
        if line.strip():
            inside = line.startswith("   ") if inside else False
            inside = inside or bool(re.match(r"\d+\. ", line))
        lines.append(f" {line}" if inside and line.startswith("   ") else line)
    return "\n".join(lines)

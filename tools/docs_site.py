"""Hooks of MkDocs for `make docs`: what the site has beside the pages of docs/.

    README.md, CHANGELOG.md …   become pages, under the names of PAGES
    files that a page links to  are copied: results of benchmarks, configurations
    folders that it links to    are named, without a link

Links are written for readers of the repository. A page that asks another host for anything ends the
build: the site must work where there is no other host.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
}
"""Pages outside docs/, and their names in the site."""

_FENCE: Final = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_LOADED: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|<link\b[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon)[^>]*\bhref=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//"
)


class Elsewhere(Exception):
    """A page of the site would load something from another host; the text says which and what."""


def slug(heading: str, separator: str) -> str:
    """Return the anchor of a heading, as readers of the repository know it."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", separator)


def places(text: str, folder: str) -> set[str]:
    """Return the paths in the repository that a page in `folder` links to."""
    targets = (urlsplit(found["target"]) for found in _LINK.finditer(_FENCE.sub("", text)))
    return {
        posixpath.normpath(posixpath.join(folder, target.path))
        for target in targets
        if target.path and not target.netloc
    }


def rewritten(text: str, *, folder: str, page: str) -> str:
    """Return a page with the links of the site, instead of those of the repository.

    `folder` is its place in the repository, `page` its name in the site.
    """

    def link(found: re.Match[str]) -> str:
        target = urlsplit(found["target"])
        if target.netloc or target.scheme or not target.path:
            return found[0]
        place = posixpath.normpath(posixpath.join(folder, target.path))
        if (ROOT / place).is_dir():
            return found["label"]
        inside = PAGES.get(place, place.removeprefix("docs/"))
        path = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"{found['image']}[{found['label']}]({target._replace(path=path).geturl()})"

    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(link, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def foreign(html: str) -> str | None:
    """Return what a page would load from another host, if it does."""
    found = _LOADED.search(html)
    return found[0] if found else None


def on_config(config: Any) -> Any:  # noqa: ANN401
    """Give headings the anchors that the links of the pages use."""
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401
    """Add the pages outside docs/, and the files that pages link to."""
    from mkdocs.structure.files import File  # noqa: PLC0415 -- only the environment of `make docs` has it

    wanted: set[str] = set()
    for source, name in PAGES.items():
        text = (ROOT / source).read_text()
        wanted |= places(text, "")
        files.append(File.generated(config, name, content=rewritten(text, folder="", page=name)))
    for file in files.documentation_pages():
        if not file.generated_by:
            wanted |= places(file.content_string, posixpath.dirname(f"docs/{file.src_uri}"))
    for place in sorted(wanted):
        path = ROOT / place
        if path.is_file() and not place.startswith("docs/") and place not in PAGES:
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401
    """Rewrite the links of a page of docs/."""
    if page.file.generated_by:
        return markdown
    name = page.file.src_uri
    return rewritten(markdown, folder=posixpath.dirname(f"docs/{name}"), page=name)


def on_post_page(output: str, *, page: Any, **_: object) -> str:  # noqa: ANN401
    """Refuse a page that loads something from another host. Raises Elsewhere."""
    loaded = foreign(output)
    if loaded:
        raise Elsewhere(f"{page.file.src_uri}: {loaded}")
    return output

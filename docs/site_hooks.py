"""Hooks of the site: pages of folders, order of search results, and links to files
outside the site as plain text.

Run as a program, it writes the list of operations::

    python docs/site_hooks.py
"""

import json
import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
REFERENCE = _ROOT / "docs" / "http-reference.md"
_BEGIN = """# Every operation

Made from `openapi/openapi.json` by `python docs/site_hooks.py`. [The API by example](api.md) explains the operations,
and a running service shows its own document at `/openapi.json`.

"""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_OMITTED = {"notebooks", "examples", "make"}
_BOOST_BESIDE_USE = 0.2
"""Factor of search scores of pages that users do not need: results, proofs, decisions."""


def on_config(config: Any, **_: Any) -> Any:
    """Called by mkdocs once: puts the pages of each folder of the navigation into it."""
    for tab in config.nav:
        for name, entries in tab.items():
            tab[name] = [_entry(entry) for entry in entries]
    return config


def _entry(entry: Any) -> Any:
    """An entry of a tab; a folder becomes the list of its pages, ``README.md`` first."""
    if isinstance(entry, str):
        return entry
    ((title, target),) = entry.items()
    if not (isinstance(target, str) and target.endswith("/")):
        return entry
    pages = sorted(
        (_ROOT / "docs" / target).glob("*.md"),
        key=lambda page: (page.name != "README.md", page.name),
    )
    return {title: [page.relative_to(_ROOT / "docs").as_posix() for page in pages]}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page before the Markdown is read."""
    tab = page.ancestors[-1].title if page.ancestors else None
    if tab != "Use":
        page.meta["search"] = {"boost": _BOOST_BESIDE_USE}
    folder = Path(page.file.abs_src_path).parent
    return _LINK.sub(lambda link: _kept(link, folder), markdown)


def _kept(link: re.Match[str], folder: Path) -> str:
    """A link, or its text and the path in the repository where the target is no page of
    the site.
    """
    text, target = link[1], link[2]
    if "://" in target:
        return link[0]
    path = (folder / target).resolve()
    docs = _ROOT / "docs"
    if (
        path.is_relative_to(docs)
        and path.is_file()
        and path.relative_to(docs).parts[0] not in _OMITTED
    ):
        return link[0]
    name = path.relative_to(_ROOT).as_posix() if path.is_relative_to(_ROOT) else target
    return text if text.strip("`") == name else f"{text} (`{name}`)"


def reference() -> str:
    """The page of all operations."""
    document = json.loads(
        (_ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8")
    )
    return _BEGIN + _operations(document) + _all_fields(document)


def _operations(document: dict[str, Any]) -> str:
    """Every operation as Markdown, by path."""
    parts = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(
                f"## `{method.upper()} {path}`\n\n{operation.get('description') or operation['summary']}\n"
            )
            for parameter in operation.get("parameters", ()):
                needed = "" if parameter.get("required") else ", optional"
                parts.append(
                    f"* `{parameter['name']}` ({parameter['in']}{needed}): "
                    f"{parameter['description']}"
                )
            body = _schemas(operation.get("requestBody", {}))
            parts += [f"* body: {body}"] if body else []
            for status, answer in operation["responses"].items():
                shape = _schemas(answer)
                parts.append(
                    f"* {status}: {answer['description']}"
                    + (f" {shape}" if shape else "")
                )
            parts += _examples(operation)
            parts.append("")
    return "\n".join(parts)


def _examples(operation: dict[str, Any]) -> list[str]:
    """The recorded request and answer of an operation, as blocks of JSON."""
    succeeded = next(
        answer for status, answer in operation["responses"].items() if status < "300"
    )
    bodies = {"Request": operation.get("requestBody", {}), "Answer": succeeded}
    blocks = []
    for title, body in bodies.items():
        shown = body.get("content", {}).get("application/json", {}).get("example")
        if shown is not None:
            text = json.dumps(shown, indent=2, ensure_ascii=False)
            blocks += [f"\n{title}:\n", f"```json\n{text}\n```"]
    return blocks


def _all_fields(document: dict[str, Any]) -> str:
    """Every schema as a table of its fields."""
    parts = ["\n# Every schema\n"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(f"## {name}\n")
        required = schema.get("required", ())
        parts += ["| field | type | required | meaning |", "|---|---|---|---|"]
        for field, part in schema.get("properties", {}).items():
            needed = "yes" if field in required else "no"
            meaning = _cell(part["description"])
            parts.append(f"| `{field}` | {_type(part)} | {needed} | {meaning} |")
        parts.append("")
    return "\n".join(parts)


def _type(part: dict[str, Any]) -> str:
    """A type in words, with its allowed values and a link to each schema in it."""
    if "$ref" in part:
        return _link(part["$ref"].rpartition("/")[2])
    if "anyOf" in part:
        return " or ".join(_type(choice) for choice in part["anyOf"])
    if "enum" in part:
        return ", ".join(f"`{_cell(str(value))}`" for value in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    if part.get("type") == "array":
        return f"list of {_type(part['items'])}" if part.get("items") else "list"
    return str(part.get("type", "any value"))


def _link(schema: str) -> str:
    return f"[{schema}](#{schema.lower()})"


def _cell(text: str) -> str:
    """A text of a table, in which a bar would end the cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _schemas(part: dict[str, Any]) -> str:
    """Names of the schemas of a body, by media type."""
    listed = []
    for media, content in part.get("content", {}).items():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        if name != "Problem":
            listed.append(_link(name) if name else f"`{media}`")
    return ", ".join(listed)


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")

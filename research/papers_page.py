"""Writes ``docs/papers.md`` from the catalogue: what each paper claimed, what is wrong,
and what runs here.

Run ``python -m research.papers_page`` after a description in the catalogue changed; a
test compares the page.
"""

from pathlib import Path

from grovekeeper_forests import catalogue

PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
_HEAD = """# The papers

Published private forests claim ε-differential privacy. Of the forests below, the claims of `mrf`, `spe`, `sspe-1`,
`maxtree`, `bms-rf` and `srt` are false as written or as coded. The claim of `rdt` holds where a row is added or
removed, that of `sspe-2` where a label is added or removed, and that of `pte` in one of the two settings that its text
names. Grovekeeper runs each forest in a repaired form, at its true price. `grovekeeper algorithms NAME` prints the same
sentences; each [proof](proofs/README.md) shows the repair, and tests put every known flaw back and demand that a test
fails.
"""


def text() -> str:
    """The page."""
    parts = [_HEAD]
    for algorithm in catalogue.algorithms():
        about = algorithm["about"]
        if about["claimed"] is None:
            continue
        parts.append(f"## `{algorithm['slug']}`: {algorithm['title']}\n")
        parts.append(f"Source: {algorithm['source']}.\n")
        parts.append(f"* **Claimed.** {about['claimed']}")
        if about["wrong"] is not None:
            parts.append(f"* **What is wrong.** {about['wrong']}")
        parts.append(f"* **What runs here.** {about['here']}")
        proof, results = (
            about[name].removeprefix("docs/") for name in ("proof", "results")
        )
        parts.append(f"* [Proof]({proof}), [measurements]({results})\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

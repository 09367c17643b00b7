"""The four lives as diagrams, drawn from their tables. `python -m tests.lives` writes them into the README; a test holds that they are the same."""

from __future__ import annotations

from pathlib import Path

from gateway.core.lifecycle import LIVES, Table

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- lives:begin -->\n", "<!-- lives:end -->\n"


def diagram(table: Table) -> str:
    """One life in Mermaid's words. What happens before the first event is no state; where nothing more can come, life ends."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for state, inputs in table.items():
        goes: dict[str, list[str]] = {}
        for word, after in inputs.items():
            goes.setdefault(after, []).append(word)
        lines += [f"    {'[*]' if state == 'new' else state} --> {after}: {', '.join(words)}" for after, words in goes.items()]
        if not inputs:
            lines.append(f"    {state} --> [*]")
    return "\n".join([*lines, "```\n"])


def lives() -> str:
    return "\n".join(f"**{name.capitalize()}**\n\n{diagram(table)}" for name, table in LIVES.items())


def drawn(text: str) -> str:
    """The README with today's diagrams."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{lives()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    README.write_text(drawn(README.read_text("utf-8")), "utf-8")

"""Lines of a given width for a terminal: wrapped at words, paths shortened in the middle, no silent cut."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text


def clean(text: str) -> str:
    """`text` in one line without control characters: a file name must not move the cursor."""
    return "".join(char if char.isprintable() else " " if char in "\n\t" else "�" for char in text)


def shorten_middle(text: str, width: int) -> str:
    """At most `width` cells: the start and, more of it, the end, which for a path tells most."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    head = (width - 1) // 3
    tail = text
    while cell_len(tail) > width - 1 - head:
        tail = tail[1:]
    return set_cell_size(text, head) + "…" + tail


def shorten_end(text: str, width: int) -> str:
    """At most `width` cells: the start."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at spaces; a longer word is shortened if a path, else broken."""
    lines: list[str] = []
    line = ""
    for word in clean(text).split(" "):
        pieces = [word]
        if cell_len(word) > width:
            pieces = [shorten_middle(word, width)] if "/" in word or "\\" in word else chop_cells(word, width)
        for piece in pieces:
            if line and cell_len(line) + 1 + cell_len(piece) > width:
                lines.append(line)
                line = piece
            else:
                line = f"{line} {piece}" if line else piece
    return [*lines, line]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled with spaces to `width` cells, or shortened in the middle."""
    text = shorten_middle(clean(text), width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def field(label: str, text: str, *, indent: int, label_width: int, width: int, style: str = "") -> list[Text]:
    """`label` in front of `text`, which is wrapped beside it and never under it."""
    start = indent + label_width
    lines = wrap(text, max(20, width - start))
    head = Text.assemble(" " * indent, (pad(label, label_width), "dim"), (lines[0], style))
    return [head, *(Text.assemble(" " * start, (line, style)) for line in lines[1:])]


def table(rows: list[list[str]], *, right: set[int], width: int, shrink: tuple[int, ...], gap: int = 2) -> list[Text]:
    """Columns as wide as their content, the first row as heading; columns `shrink` give way in their order."""
    rows = [[clean(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(rows[0]))]
    excess = sum(widths) + gap * (len(widths) - 1) - width
    for column in shrink:
        give = min(max(0, excess), max(0, widths[column] - 8))
        widths[column] -= give
        excess -= give
    lines = []
    for number, row in enumerate(rows):
        cells = (pad(cell, widths[at], right=at in right) for at, cell in enumerate(row))
        line = shorten_middle((" " * gap).join(cells).rstrip(), width)
        lines.append(Text(line, style="dim" if number == 0 else ""))
    return lines


def print_lines(lines: Iterable[Text], console: Console) -> None:
    """Print lines as they are; they are already made for the console's width."""
    plain = not console.encoding.lower().replace("-", "").startswith("utf")
    for line in lines:
        if plain:
            line.plain = line.plain.translate(_PLAIN).encode(console.encoding, "replace").decode(console.encoding)
        console.print(line, soft_wrap=True, highlight=False)


def to_text(lines: Iterable[Text], width: int, color: bool) -> str:
    """Lines as one string, with ANSI colours or without."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
    )
    print_lines(lines, console)
    return out.getvalue()


# One character for one, so that widths and styles stay right on a terminal that knows no UTF-8.
_PLAIN = str.maketrans("─·…—–×µ█▉▊▋▌▍▎▏", "--.--xu########")

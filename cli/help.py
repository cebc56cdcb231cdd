"""The help of a command: its text, its examples, and its options in panels, at any width of the terminal.

Typer's own help cuts long names of options in a narrow terminal. Here a name that does not fit into its
column gets a line of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from .examples import examples_of

if TYPE_CHECKING:
    from rich.console import Console

#: Lines longer than this are hard to read, however wide the terminal is.
LONGEST_LINE = 120
#: From this width on, explanations stand in a column of their own.
TWO_COLUMNS = 72
#: The widest that the column of names gets.
NAME_COLUMN = 28


@dataclass(frozen=True, slots=True)
class HelpRow:
    """An argument, an option or a command: its name and what it is for."""

    panel: str
    name: str
    text: str


class HelpCommand(TyperCommand):
    """A command whose help fits the terminal."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _draw(self, ctx, list(_parameter_rows(self, ctx)))


class HelpGroup(TyperGroup):
    """The commands as a whole, whose help fits the terminal."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        commands = (self.get_command(ctx, name) for name in self.list_commands(ctx))
        listed = [HelpRow("Commands", each.name or "", _summary(each.help)) for each in commands if each]
        _draw(self, ctx, [*listed, *_parameter_rows(self, ctx)])


def _summary(text: str | None) -> str:
    return next(iter(_paragraphs(text)), "")


def _paragraphs(text: str | None) -> list[str]:
    """Return paragraphs without the line breaks that they have in the source."""
    return [" ".join(each.split()) for each in inspect.cleandoc(text or "").split("\n\n") if each.strip()]


def _parameter_rows(command: Any, ctx: Any) -> Iterator[HelpRow]:
    """Yield arguments and options in the order of their declaration, `--help` with the last of them."""
    panel = "Options"
    for each in command.get_params(ctx):
        is_help = "--help" in each.opts
        if not is_help:
            own = getattr(each, "rich_help_panel", None)
            panel = own or ("Arguments" if each.param_type_name == "argument" else "Options")
        yield HelpRow(panel, _name(each), _explanation(each))


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return _argument(param)
    names = sorted([*param.opts, *param.secondary_opts], key=lambda name: not name.startswith("--"))
    value = _value(param)
    return f"{', '.join(names)} {value}" if value else ", ".join(names)


def _argument(param: Any) -> str:
    name = str(param.metavar or param.name.upper()).strip("[].")
    name = f"{name}..." if param.nargs == -1 else name
    return name if param.required else f"[{name}]"


def _value(param: Any) -> str:
    """Return what stands for the value of an option; nothing for one that has none."""
    if getattr(param, "is_flag", False):
        return ""
    return str(param.metavar or "N")


def _explanation(param: Any) -> str:
    text = " ".join((param.help or "").split())
    default = param.default.value if isinstance(param.default, Enum) else param.default
    if param.required:
        return text
    if getattr(param, "is_flag", False):
        return f"{text} Default: {param.opts[0]}." if default is True else text
    if not isinstance(default, str | int | float) or getattr(param, "show_default", True) is False:
        return text
    return f"{text} Default: {default}."


def _draw(command: Any, ctx: Any, rows: list[HelpRow]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    console.width = min(console.width, LONGEST_LINE)
    usage = Text.assemble(("Usage: ", "bold"), _usage(command, ctx))
    console.print(Padding(usage, (1, 0, 0, 1)))
    for paragraph in _paragraphs(command.help):
        console.print(Padding(Text(paragraph), (1, 0, 0, 1)))
    _draw_examples(str(ctx.command.name), console)
    column = max((len(row.name) for row in rows if len(row.name) <= NAME_COLUMN), default=NAME_COLUMN)
    for panel in dict.fromkeys(row.panel for row in rows):
        console.print(Padding(Text(panel, "bold yellow"), (1, 0, 0, 1)))
        _draw_rows([row for row in rows if row.panel == panel], column, console)


def _usage(command: Any, ctx: Any) -> str:
    arguments = [_argument(each) for each in command.get_params(ctx) if each.param_type_name == "argument"]
    if isinstance(command, HelpGroup):
        arguments = ["COMMAND"]
    return " ".join([ctx.command_path, *arguments, "[OPTIONS]"])


def _draw_examples(command: str, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    found = examples_of(command)
    if not found:
        return
    console.print(Padding(Text("Examples", "bold yellow"), (1, 0, 0, 1)))
    for each in found:
        console.print(Padding(Text(each.what), (0, 0, 0, 3)))
        for line in continued(each.command, console.width - 5):
            console.print(Padding(Text(line, "green"), (0, 0, 0, 5)))


def continued(command: str, width: int) -> list[str]:
    """Break a shell command into lines of a width, so that it can be pasted as it is shown."""
    lines: list[str] = []
    current = ""
    for word in command.split(" "):
        if not current:
            current = word
        elif len(current) + 1 + len(word) + 2 <= width:
            current = f"{current} {word}"
        else:
            lines.append(f"{current} \\")
            current = f"  {word}"
    return [*lines, current]


def _draw_rows(rows: Iterable[HelpRow], column: int, console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    narrow = console.width < TWO_COLUMNS
    for row in rows:
        name = Text(row.name, "cyan")
        if narrow or len(row.name) > column:
            console.print(Padding(name, (0, 0, 0, 3)))
            name = Text("")
        if narrow:
            console.print(Padding(Text(row.text), (0, 0, 0, 7)))
            continue
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=column, no_wrap=True)
        grid.add_column()
        grid.add_row(name, Text(row.text))
        console.print(Padding(grid, (0, 0, 0, 3)))

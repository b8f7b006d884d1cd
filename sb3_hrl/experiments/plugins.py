"""``sb3-hrl plugins``."""

from rich.console import Console
from rich.table import Table

from sb3_hrl.errors import PluginError
from sb3_hrl.registry import ALGORITHMS, GROUPS, Plugin, plugins


def list_plugins() -> int:
    """
    Print every registered plug-in, where it comes from and whether it loads.

    :return: 0 if all of them load, 1 otherwise
    """
    table = Table("group", "name", "distribution", "announced as", "loads")
    problems = []
    for group in GROUPS:
        for plugin in plugins(group).values():
            problem = find_problem(plugin)
            table.add_row(group, plugin.name, plugin.distribution, plugin.value, "no" if problem else "yes")
            if problem:
                problems.append(problem)
    # Without a terminal rich would fold the table to 80 columns, in the middle of names.
    console = Console()
    console.width = max(console.width, 160) if not console.is_terminal else console.width
    console.print(table)
    for problem in problems:
        console.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    return 1 if problems else 0


def find_problem(plugin: Plugin) -> str | None:
    """
    :param plugin: a plug-in
    :return: why it cannot be used, or None
    """
    try:
        loaded = plugin.load()
        if plugin.group == ALGORITHMS:
            for field in ("algorithm", "sampler", "converter"):
                plugin.load_field(field)
            if not loaded.hyperparams_path.is_file():
                raise PluginError(
                    f"the {plugin.group} plug-in {plugin.name!r} of {plugin.distribution} lacks its hyperparameters: "
                    f"{loaded.hyperparams_path}"
                )
    except PluginError as error:
        return str(error)
    return None

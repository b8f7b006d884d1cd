"""Pictures and pages of comparisons."""

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sb3_hrl.experiments.compare import Panel

# Okabe and Ito's colours, which stay apart for people who see few of them; the dashes are for those who see none.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 2), (8, 3, 2, 3))


def style(index: int) -> tuple[str, tuple[int, ...]]:
    """
    :param index: of a group
    :return: its colour and its dashes
    """
    return COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]


def draw(panels: Sequence["Panel"], file: Path, title: str, legend: str) -> None:
    """
    :param panels: two or four
    :param file: where the picture goes
    :param title: above them all
    :param legend: what lines and bands are
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    n_rows = (len(panels) + 1) // 2
    with plt.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(n_rows, 2, figsize=(11, 1 + 3.6 * n_rows), layout="constrained", squeeze=False)
        labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
        for panel, plot in zip(panels, axes.flat, strict=True):
            for curve in panel.curves:
                colour, dashes = style(labels.index(curve.label))
                marker = "o" if len(curve.x) == 1 else None
                (line,) = plot.plot(curve.x, curve.y, color=colour, linewidth=2, label=curve.label, marker=marker)
                if dashes:
                    line.set_dashes(dashes)
                if curve.low is not None and curve.high is not None:
                    plot.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
            if not panel.curves:
                plot.text(0.5, 0.5, "nothing was logged", ha="center", va="center", transform=plot.transAxes)
            plot.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
            for axis, label in ((plot.xaxis, panel.x_label), (plot.yaxis, panel.y_label)):
                if "steps" in label:
                    axis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
            if "steps" in panel.y_label:
                plot.set_ylim(bottom=0)
            plot.grid(alpha=0.3)
        handles, names = axes.flat[0].get_legend_handles_labels()
        options = {"ncols": min(4, max(1, len(names))), "handlelength": 3.5, "frameon": False}  # long enough to see the dashes
        figure.legend(handles, names, loc="outside lower center", **options)
        figure.suptitle(f"{title}\n{legend}" if legend else title, fontsize=12)
        figure.savefig(file, dpi=110)
        plt.close(figure)


def make_page(
    title: str,
    conclusion: str,
    legend: str,
    header: Sequence[str],
    sections: Mapping[str, Sequence[Sequence[str]]],
    panels: Sequence["Panel"],
    lists: Mapping[str, Sequence[str]],
) -> str:
    """
    One file that opens without a network: the table, and the plots to look into.

    :param title: of the page
    :param conclusion: the sentence above the table
    :param legend: what lines and bands are
    :param header: of the table
    :param sections: its rows, by section
    :param panels: the plots
    :param lists: further lines, by heading
    :return: the page
    """
    rows = [_row(header, "th")]
    for name, section in sections.items():
        rows += [f'<tr><th class="section" colspan="{len(header)}">{html.escape(name)}</th></tr>'] if name else []
        rows += [_row(row, "td") for row in section]
    notes = [
        f"<h2>{html.escape(name)}</h2><ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
        for name, lines in lists.items()
        if lines
    ]
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    styles = [(label, *style(index)) for index, label in enumerate(labels)]
    data = {
        "groups": [{"label": label, "colour": c, "dashes": " ".join(map(str, dashes))} for label, c, dashes in styles],
        "panels": [{**panel._asdict(), "curves": [curve._asdict() for curve in panel.curves]} for panel in panels],
    }
    page = (files("sb3_hrl.experiments") / "comparison.html").read_text()
    for name, text in {
        "@TITLE@": html.escape(title),
        "@CONCLUSION@": html.escape(conclusion),
        "@LEGEND@": html.escape(legend),
        "@TABLE@": "\n".join(rows),
        "@NOTES@": "\n".join(notes),
        "@DATA@": json.dumps(data).replace("<", "\\u003c"),
    }.items():
        page = page.replace(name, text)
    return page


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

"""The report's page: one HTML file with its style, script and pictures inside, made from Jinja2 templates.

Everything the page shows is passed to `page`. The templates escape all text; what they are given as markup is their own
style sheet and script, and the addresses of pictures.
"""

import base64
import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from igr.lab.analysis.findings import Finding, Verdict, tallied
from igr.lab.experiments.predictions import PREDICTIONS
from igr.lab.report.chapter import Chapter
from igr.lab.report.html.tables import panels, rows
from igr.lab.report.html.vector import address
from igr.lab.report.summary import cards, limits

ORDER = {verdict: place for place, verdict in enumerate(Verdict)}  # by which the column of verdicts sorts


def page(own: Sequence[Chapter], other: Sequence[Chapter], table: str) -> str:
    """The page with the chapters `own` and, beside them, `other`. `table` is the CSV of all findings, to download."""
    both = [*own, *other]
    environment = Environment(
        loader=PackageLoader("igr.lab.report.html"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"picture": address, "minus": _minus, "as_json": _as_json, "rounded": _rounded}
    environment.filters |= {"tallied": tallied, "common": _common}
    assert environment.loader is not None
    style, script = (environment.loader.get_source(environment, name)[0] for name in ("style.css", "page.js"))
    experiments = {name: [each for each in both if each.name == name] for name in (each.name for each in both)}
    return environment.get_template("page.html").render(
        style=style,
        script=script,
        groups=[group for group in (own, other) if group],
        both=both,
        cards=cards(own, other),
        limits=list(limits(own, other)),
        experiments=experiments,
        panels={name: panels(sides) for name, sides in experiments.items()},
        predictions=PREDICTIONS,
        about=_about,
        rows=rows(own, other),
        verdicts=list(Verdict),
        tally=lambda group: Counter(finding.verdict for each in group for finding in each.findings),
        order=ORDER,
        csv="data:text/csv;base64," + base64.b64encode(table.encode()).decode(),
    )


def _about(finding: Finding) -> list[str]:
    """The keys of the predictions that a finding is about."""
    return [key for key, prediction in PREDICTIONS.items() if prediction.about([finding])]


def _minus(number: str) -> str:
    """A number with the sign that is as wide as a plus."""
    return number.replace("-", "−")


def _rounded(value: float | None) -> str:
    """A number of at most four digits."""
    return "" if value is None else _minus(f"{value:.4g}")


def _common(units: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The entries of the records that more than half of the runs share, in the form of a run; None for a few runs.

    >>> _common([{"record": {"igr": "0.2", "seconds": k}} for k in range(3)])
    {'record': {'igr': '0.2'}}
    """
    if len(units) < 3:
        return None
    texts = Counter(
        (key, json.dumps(value, sort_keys=True, default=str)) for each in units for key, value in each["record"].items()
    )
    shared = {
        key: json.loads(text) for (key, text), times in texts.items() if 2 * times > len(units) and text != "null"
    }
    return {"record": shared} if shared else None


def _as_json(unit: dict[str, Any], common: dict[str, Any] | None = None) -> Markup:
    """The configuration and the record of a run as the text of an element, without empty entries.

    What `common` says as well is left out, and what only `common` has is null. A list of numbers stays on one line.
    Quotes stay quotes: they are no markup there, and would be half of the text.

    >>> print(_as_json({"config": {"rates": [0.1, 0.2], "text": "<b>"}, "record": {"n": None, "seconds": 3}}))
    {
     "config": {
      "rates": [ 0.1, 0.2 ],
      "text": "&lt;b&gt;"
     },
     "seconds": 3
    }
    """
    shared = common["record"] if common else {}
    said = {
        key: json.loads(json.dumps(value, default=str)) for key, value in unit["record"].items() if value is not None
    }
    record = {key: value for key, value in said.items() if key not in shared or shared[key] != value}
    record |= dict.fromkeys(shared.keys() - said.keys())
    config = {"config": unit["config"]} if "config" in unit else {}
    text = json.dumps(config | record, indent=1, sort_keys=True, default=str)
    text = re.sub(r"\[\s[-+.,\s\deE]*\]", lambda found: " ".join(found[0].split()), text)
    return Markup(html.escape(text, quote=False))

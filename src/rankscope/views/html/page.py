"""The report as one HTML file that needs nothing else: no network, no fonts, no second file."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup, escape

from rankscope.report.details import Details
from rankscope.report.report import Report, first_problem
from rankscope.views.attempts import attempt_rows, changed_text
from rankscope.views.html.budget import budget_rows, phases_of
from rankscope.views.html.cards import cards_of
from rankscope.views.html.drawings import drawings_json
from rankscope.views.model_tables import (
    INPUT_HEAD,
    LAYER_HEAD,
    OUTPUT_HEAD,
    PREDICTION_HEAD,
    input_rows,
    layer_rows,
    output_rows,
    prediction_rows,
)
from rankscope.views.quantities import share_text, time_text
from rankscope.views.sentences import (
    advice_when_not_examined,
    exits_text,
    headline,
    healthy_text,
    measured_texts,
    run_text,
    step_text,
    why_not_examined,
)


def render_html(report: Report, details: Details | None = None) -> str:
    """The whole page. Sections for which report and details hold nothing are left out, or say so."""
    details = details or Details()
    script = _file("page.js")
    phases = phases_of(report, details)
    page = _template().render(
        report=report,
        details=details,
        cards=cards_of(report, details),
        root=first_problem(report),
        attempts=attempt_rows(report.run.attempts),
        changed=changed_text(report.run.attempts),
        headline=headline(report),
        healthy=healthy_text(report),
        why=why_not_examined(report),
        advice=advice_when_not_examined(report),
        step=step_text(report),
        budget=budget_rows(report),
        phases=phases,
        run_line=run_text(report.run),
        exits=exits_text(report.run.exits),
        model=_model_tables(report),
        model_advice=report.model.advice if report.model is not None else (),
        measured=measured_texts(report),
        style=Markup(_file("style.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        # JSON that cannot end its element: `<`, `>` and `&` are escaped by drawings_json.
        drawings=Markup(drawings_json(details, phases)),
    )
    # A file name that is not UTF-8 reaches Python as lone surrogates, which no file can hold.
    return page.encode("utf-8", "replace").decode()


def _model_tables(report: Report) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, heading, rows) of each table about the model; empty where nothing is known of it."""
    model = report.model
    if model is None:
        return []
    return [
        ("Parameters", LAYER_HEAD, layer_rows(model)),
        ("Batches", INPUT_HEAD, input_rows(model)),
        ("Outputs of modules", OUTPUT_HEAD, output_rows(model)),
        ("Predictions", PREDICTION_HEAD, prediction_rows(model)),
    ]


def _file(name: str) -> str:
    return resources.files("rankscope.views.html").joinpath(name).read_text("utf-8")


def _sentence(text: str) -> str:
    """`text` with a capital first letter and the rest as it is; jinja's own filter makes it small letters."""
    return text[:1].upper() + text[1:]


def _prose(text: str) -> Markup:
    """`text` escaped, with what stands between backticks set as code."""
    *pairs, last = text.split("`")
    pieces = [Markup("<code>{}</code>").format(piece) if at % 2 else escape(piece) for at, piece in enumerate(pairs)]
    # With an odd number of backticks the last one opens nothing and stays as it is.
    rest = escape(last) if len(pairs) % 2 == 0 else escape("`" + last)
    return Markup("").join([*pieces, rest])


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["prose"] = _prose
    environment.filters["time"] = time_text
    environment.filters["share"] = share_text
    environment.filters["sentence"] = _sentence
    return environment.from_string(_file("page.html"))

"""The end of `igr reproduce`: it fits a screen, breaks no word, and says what the stored findings say."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.cli.answer import show_answer
from igr.lab.cli.report import print_findings
from igr.lab.experiments.predictions import LIMITS, PREDICTIONS
from igr.lab.report.chapter import OWN, SHIPPED, Chapter


def headline(key, scale, value=-0.9333, verdict=Verdict.HOLDS, n=126):
    prediction = PREDICTIONS[key]
    return Finding(prediction.short, "", prediction.quantity, value, n, verdict, id=prediction.headline(scale))


def chapters(scale, source, more=()):
    made = {}
    for key, prediction in PREDICTIONS.items():
        made.setdefault(prediction.experiment, []).append(headline(key, scale))
    found = [Chapter(name, "", scale, 9, [], source=source, findings=[*some, *more]) for name, some in made.items()]
    if scale == "paper":
        boost = Finding("boost", "", "points", 12.8, 3, Verdict.HOLDS, id=LIMITS[0].finding)
        found.append(Chapter("resnet", "", scale, 3, [], source=source, findings=[boost]))
    return found


def shown(own, other, width):
    file = io.StringIO()
    show_answer(Console(file=file, width=width), own, other)
    return file.getvalue()


LONG = "Descent with steps of a hundredth stays closer to the flow of the modified loss than to the gradient flow of E"
FAILING = [Finding(f"{LONG} {k}", "", "x", 1.0, 3, Verdict.FAILS, id=f"long.{k}") for k in range(9)]


def test_the_five_verdicts_stand_beside_those_of_paper_scale_on_one_screen():
    text = shown(chapters("quick", OWN, FAILING), chapters("paper", SHIPPED), 80)
    lines = text.splitlines()
    assert len(lines) <= 22, "three lines are left for the page and the command for more"
    assert max(map(len, lines)) <= 80
    for prediction in PREDICTIONS.values():
        (line,) = (line for line in lines if prediction.short in line)
        assert line.count("holds -0.93 (126)") == 2
    assert lines[0].split() == ["Prediction", "here,", "quick", "repository,", "paper"]
    assert "18 fail. These fail:" in " ".join(text.split())
    assert "and 14 more" in text
    assert "points = 12.8 (n = 3). Your own: igr run resnet --scale paper" in " ".join(text.split())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_word_is_broken(width):
    own, other = chapters("quick", OWN, FAILING), chapters("paper", SHIPPED)
    text = shown(own, other, width)
    words = set(re.findall(r"[\w-]+", shown(own, other, 400)))
    assert max(map(len, text.splitlines())) <= width
    assert set(re.findall(r"[\w-]+", text)) <= words


def test_what_was_not_run_says_so_and_one_source_has_one_column():
    own = [each for each in chapters("quick", OWN) if each.name == "theorem"]
    text = shown(own, [], 80)
    assert text.count("not run") == 4
    assert "repository" not in text
    mixed = dataclasses.replace(own[0].findings[0], verdict=Verdict.UNTESTABLE, value=None)
    own[0].findings = [mixed]
    assert "not testable" in shown(own, [], 80)


def test_experiments_of_a_user_have_no_table_of_the_papers_predictions():
    mine = Chapter("mine", "", "quick", 1, [], findings=[Finding("it holds", "", "x", 1.0, 3, Verdict.HOLDS)])
    assert shown([mine], [], 80) == "1 finding here: 1 holds.\n"


def test_no_short_claim_is_too_long_for_eighty_columns():
    assert max(len(each.short) for each in PREDICTIONS.values()) <= 36


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_table_of_all_findings_breaks_no_word(width):
    found = [
        Finding(
            LONG, "", "Spearman(implicit_rate, test_accuracy)", -0.6543, 82, Verdict.HOLDS, (-0.796, -0.445), id="a"
        ),
        Finding("It is open", "", "not yet computed", None, 0, Verdict.UNTESTABLE, id="b"),
    ]
    file = io.StringIO()
    print_findings(Console(file=file, width=width), found, "mlp, scale paper")
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    words = {"Spearman(implicit_rate,", "test_accuracy)", "-0.6543", "holds", "not", "testable", "computed"}
    assert words <= set(re.split(r"[\s:]+", text)) | set(text.replace(",", "").split())
    assert "[-0.796, -0.445]" in " ".join(text.split())
    assert (text.splitlines()[1].split()[:2] == ["claim", "number"]) == (width >= 80)

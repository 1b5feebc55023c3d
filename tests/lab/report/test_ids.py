"""The findings of the repository's runs: unique ids, and captions that name findings there are."""

import re
from pathlib import Path

import pytest

from igr.lab.experiments import REGISTRY, load
from igr.lab.report.chapter import chapter
from igr.lab.store.store import shipped


@pytest.fixture(scope="module")
def found():
    store = shipped()
    assert store is not None
    return {name: chapter(store, name, draw=False).findings for name in REGISTRY if name in store.experiments()}


def test_ids_are_unique_and_begin_with_their_experiment(found):
    ids = [each.id for findings in found.values() for each in findings]
    assert len(ids) > 70
    assert len(set(ids)) == len(ids)
    for name, findings in found.items():
        assert all(each.id.startswith(f"{name}.") for each in findings)


def test_captions_name_findings_there_are(found):
    for name, findings in found.items():
        for stem, caption in load(name).CAPTIONS.items():
            assert caption.findings, stem
            for id in caption.findings:
                assert any(each.is_part_of(id) for each in findings), (stem, id)


def test_what_depends_on_the_scale_is_in_no_id(found):
    """The same claim has the same id at every scale: widths, steps and times stay in the claim."""
    for findings in found.values():
        for each in findings:
            assert not {"400", "375", "3750", "375000"} & set(each.id.replace(".", "-").split("-")), each.id


ROW = re.compile(r"\| (-?[\d.]+) \| (\d+) \| \[(-?[\d.]+), (-?[\d.]+)\]")
PAGES = Path(__file__).parents[3] / "docs" / "results"


def printed(number, text):
    """Whether a number rounds to what a page prints."""
    decimals = len(text.partition(".")[2])
    return abs(number - float(text)) <= 0.5 * 10**-decimals + 1e-9


@pytest.mark.parametrize(("name", "least"), [("mlp", 25), ("resnet", 20), ("regime", 10)])
def test_intervals_on_the_pages_are_those_of_the_stored_runs(found, name, least):
    """Each table row at paper scale that has an interval."""
    rows = ROW.findall((PAGES / f"{name}.md").read_text().partition("\n## At quick scale")[0])
    assert len(rows) >= least

    def known(value, n, low, high):
        return any(
            each.n == int(n) and each.interval and printed(each.value, value)
            and printed(each.interval[0], low) and printed(each.interval[1], high)
            for each in found[name]
        )  # fmt: skip

    assert [row for row in rows if not known(*row)] == []
    assert not known("0.5", "82", "0.4", "0.6"), "not every row is one of them"


README = {  # the beginning of a row of its table, and the finding that the row is about
    "On smooth networks": "theorem.order.modified-flow.smooth",
    "Gradient descent stays closer to the modified flow": "two-parameter.closer-to-modified-flow.start-i.largest",
    "At equal loss and width": "mlp.equal-loss.slope-falls-with-h.common-range",
    "At equal physical time and width": "mlp.within-width.ratio-falls-with-h.equal-time",
    "Test accuracy grows": "mlp.within-width.accuracy-grows-with-h.max-test",
    "Larger steps end": "mlp.slope-falls-with-h.noise",
    "With larger steps, the accuracy": "mlp.accuracy-under-noise-grows-with-h",
    "The penalty raises test accuracy": "resnet.boost-of-12-points",
    "The best penalty beats": "resnet.best-penalty-beats-best-rate",
    "The penalty beats SAM": "resnet.penalty-beats-sam",
}


def wrong_in_the_readme(text, found):
    """The rows of the table of results that do not say what the stored runs say."""
    rows = re.findall(r"^\| (.+) \| (holds|fails|mixed|not testable) \| ([^|]+) \| ?([^|]*) ?\|$", text, re.MULTILINE)
    everything = {each.id: each for findings in found.values() for each in findings}
    assert len(rows) == len(README)
    wrong, command = [], ""
    for claim, verdict, number, given in rows:
        command = given.strip() or command
        finding = everything[next(id for begin, id in README.items() if claim.startswith(begin))]
        value, n = re.search(r"-?\d[\d.]*", number)[0], int(re.search(r"n = ([\d,]+)", number)[1].replace(",", ""))
        right = verdict == finding.verdict and printed(finding.value, value) and n == finding.n
        if not right or command != f"`igr run {finding.id.partition('.')[0]} --scale paper`":
            wrong.append((claim, verdict, number, command, finding.verdict, finding.value, finding.n))
    return wrong


def test_the_results_in_the_readme_are_those_of_the_stored_runs(found):
    text = (PAGES.parents[1] / "README.md").read_text()
    assert wrong_in_the_readme(text, found) == []
    for right, not_right in (
        ("| holds |", "| fails |"),
        ("-0.75", "-0.76"),
        ("n = 82", "n = 83"),
        ("run mlp", "run x"),
    ):
        assert wrong_in_the_readme(text.replace(right, not_right, 1), found) != []
    everything = {each.id: each for findings in found.values() for each in findings}
    for words, id in (
        (r"by ([\d.]+) points", "resnet.boost-of-12-points"),
        (r"was ([\d.]+) points better than the best penalty", "resnet.best-penalty-beats-best-rate"),
    ):
        assert printed(abs(everything[id].value), re.search(words, text)[1]), id

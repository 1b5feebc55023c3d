"""Pages whose numbers come from the stored runs: every number is the store's, and none is left unmarked."""

import importlib.util
import re
from pathlib import Path

import pytest

from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.experiments.claims import CLAIMS
from igr.lab.experiments.predictions import PREDICTIONS
from igr.lab.report.claims import page
from igr.lab.report.gather import gather
from igr.lab.report.pages import Results, count, filled, unmarked
from igr.lab.store.config import ConfigError, Scale
from igr.lab.store.store import Store

ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location("write", ROOT / "docs" / "results" / "write.py")
assert spec is not None
assert spec.loader is not None
write = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write)


@pytest.fixture(scope="module")
def results():
    return gather({name: Store(folder) for name, folder in write.STORES.items()})


@pytest.mark.parametrize("path", write.PAGES, ids=lambda path: path.name)
def test_every_marked_number_is_that_of_the_stored_runs(results, path):
    text = path.read_text()
    assert filled(text, results) == text, "run python docs/results/write.py"


MARKED = [path for path in write.PAGES if path.parent.name == "results"]


@pytest.mark.parametrize("path", MARKED, ids=lambda path: path.name)
def test_no_result_on_a_page_is_unmarked(path):
    assert unmarked(path.read_text()) == []


def test_a_wrong_number_is_seen_wherever_it_stands(results):
    text = (ROOT / "docs" / "results" / "mlp.md").read_text()
    marks = re.findall(r"-?\d+\.\d+(?=<!--[a-z])", text)
    cells = re.findall(r"(?<=\| )-?\d\.\d\d(?= \|)", text)
    assert marks
    assert len(cells) > 50
    for old in (f"{marks[0]}<!--", f"| {cells[0]} |", f"| {cells[-1]} |"):
        place = text.index(old) + re.search(r"\d(?=\D*$)", old).start()
        wrong = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        assert wrong != text
        assert filled(wrong, results) == text, old
    with pytest.raises(ConfigError, match=r"names the finding 'mlp\.nothing'"):
        filled("0.5<!--mlp.nothing-->", results)
    with pytest.raises(ConfigError, match=r"names the view 'mlp\.nothing'"):
        filled("<!-- view: mlp.nothing -->\n<!-- end -->", results)


def test_every_claim_of_the_paper_has_a_finding_or_a_test_that_is_there(results):
    known = set(results.findings)
    assert len(CLAIMS) > 50
    for claim in CLAIMS:
        assert claim.findings or claim.verdict
        assert set(claim.findings) <= known, claim.where
        for test in claim.tests:
            path, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / path).read_text(), test
    for number in range(1, 5):
        assert any(claim.where == f"prediction {number}" for claim in CLAIMS)
    places = " ".join(claim.where for claim in CLAIMS)
    for figure in ("1a", "1b", "2a", "2b", "3a", "3b", "3c", "A.1", "A.2", "A.3", "A.4", "A.5", "A.6", "A.7", "A.8"):
        assert f"figure {figure}" in places, figure


def test_the_headlines_are_findings_of_the_stored_runs(results):
    for each in PREDICTIONS.values():
        assert results.find(each.headline(Scale.PAPER)).verdict != Verdict.UNTESTABLE
        assert each.why


def test_the_table_of_claims_says_what_runs_do_not_have():
    found = Finding("", "", "Spearman", -0.9, 50, Verdict.HOLDS, (-0.95, -0.8), id=CLAIMS[0].findings[0])
    lines = page({"theorem": [found]}).splitlines()
    assert sum("not in these runs" in line for line in lines) > 40
    assert any("**holds** | -0.90 (Spearman) | 50 | [-0.95, -0.80]" in line for line in lines)


def test_verdicts_that_do_not_survive_the_correction_are_counted_and_named():
    ps = (0.001, 0.04, 0.04, 0.9)
    verdicts = (Verdict.HOLDS, Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED)
    found = [Finding("", "", "", 0.5, 9, v, (0.1, 0.9), id=f"x.{k}", p=p)
             for k, (p, v) in enumerate(zip(ps, verdicts, strict=True))]  # fmt: skip
    assert count(found) == (
        "These runs judge 4 claims: 2 hold, 1 fails, 1 is mixed. 4 have a p value. Of the 3 of these that hold or "
        "fail, 1 keep one below 0.05 after Holm's correction for all 4."
    )
    results = Results.of({"x": found}, {})
    text = filled("<!-- table: x\nx.0 | first\nx.1 | second\n-->\n<!-- end -->", results)
    first, second = text.splitlines()[-3:-1]
    assert first.endswith("| 0.001 | 0.004 | **holds** |")
    assert second.endswith("| 0.04 | 0.12 | **holds**, not after Holm |")

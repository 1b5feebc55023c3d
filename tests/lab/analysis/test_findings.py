"""The ids of findings: valid, stable, and the names by which everything else refers to a claim."""

import pytest

from igr.lab.analysis.findings import Finding, Verdict, as_csv, with_unique_ids
from igr.lab.plots.captions import Caption
from igr.lab.report.html.tables import pairs
from igr.lab.store.config import ConfigError


def finding(claim="R_IG falls", id="", n=3):
    return Finding(claim, "figure 1", "Spearman", -1.0, n, Verdict.HOLDS, id=id)


def test_a_finding_without_an_id_has_one_made_from_its_claim():
    assert finding("R_IG/E falls as h grows: 100 %").id == "r-ig-e-falls-as-h-grows-100"
    assert finding(id="mlp.r-ig.h-0.01").to_dict()["id"] == "mlp.r-ig.h-0.01"
    assert as_csv([("mlp", "own", "smoke", finding(id="a.b"))]).splitlines()[1].startswith("mlp,own,smoke,a.b,")


@pytest.mark.parametrize("id", ["Upper", "two words", "a..b", "-a", "a-", "a_b", ".a", "é"])
def test_an_invalid_id_is_one_sentence(id):
    with pytest.raises(ConfigError, match=r"is not valid: use lower-case words joined by hyphens"):
        finding(id=id)


def test_two_findings_with_one_id_are_refused():
    assert len(with_unique_ids([finding(id="a"), finding(id="b")], "mlp")) == 2
    with pytest.raises(ConfigError, match=r"Two findings of mlp have the id 'a': give each finding its own id\."):
        with_unique_ids([finding(id="a"), finding("other", id="a")], "mlp")


def test_scales_are_paired_by_id_and_not_by_words():
    own = [finding("after 10 steps", "falls.equal-steps", 10), finding("slopes fall", "slope", 11)]
    other = [finding("slopes fall", "flatness", 20), finding("after 2,000 training steps", "falls.equal-steps", 21)]
    assert [(a and a.n, b and b.n) for a, b in pairs(own, other)] == [(10, 21), (11, None), (None, 20)]


def test_a_caption_has_the_findings_below_its_ids():
    ids = ("mlp.slope", "mlp.slope.noise", "mlp.slope-after-noise", "mlp")
    found = [finding(id=id) for id in ids]
    assert [each.id for each in Caption("", "", ("mlp.slope",)).numbers(found)] == ["mlp.slope", "mlp.slope.noise"]
    assert len(Caption("", "", ("mlp",)).numbers(found)) == 4
    assert Caption("", "").numbers(found) == []

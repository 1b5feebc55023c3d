"""What the paper claims, one by one: where it says so, in our words, and what tests it.

A mathematical statement is tested by a test of the library, and an empirical one by a finding, whose verdict is the
verdict on the claim. `igr report` writes the table of all of them, `claims.md`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper.

    `findings` are ids; the first one gives the number and the verdict, the others are what else was measured. Without
    findings, `verdict` says what the tests show, and why nothing was measured.
    """

    where: str
    says: str
    findings: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()  # file::function
    verdict: str = ""


def _proved(where: str, says: str, *tests: str, verdict: str = "holds (tested as an identity)") -> PaperClaim:
    return PaperClaim(where, says, (), tests, verdict)


PAPER, EULER = "tests/test_paper.py::", "tests/modified/test_euler.py::"

CLAIMS = (
    # the theory
    PaperClaim(
        "Theorem 3.1",
        "A step of gradient descent misses the flow of the modified loss by O(h³), and the gradient flow by O(h²)",
        ("theorem.one-step-order.modified-flow.tanh-mlp-digits", "theorem.one-step-order.gradient-flow.tanh-mlp-digits",
         "theorem.order.modified-flow.smooth", "theorem.order.gradient-flow.smooth"),
        (PAPER + "test_theorem_3_1_modified_equation",),
    ),
    PaperClaim(
        "section 3",
        "Descent stays closer to the flow of the modified loss than to the gradient flow",
        ("theorem.closer-to-modified-flow.smooth", "theorem.kinks.closer"),
    ),
    _proved("equations 2 to 4", "The modified loss is E + λ R_IG with λ = hm/4",
        PAPER + "test_equations_2_to_4_rate_times_regularizer"),
    PaperClaim(
        "remark 3.2",
        "Below some learning rate, the moderate regime, the modified flow approximates descent well",
        ("theorem.closer-to-modified-flow.smooth", "theorem.lead-ends-at-edge.smooth", "two-parameter.phases.moderate"),
    ),
    PaperClaim(
        "remark 3.2",
        "Below it, some truncation of the modified equation is exponentially close to descent",
        (),
        (EULER + "test_outside_its_radius_the_series_diverges",),
        "not tested; the series itself diverges outside its radius",
    ),
    _proved("proposition 3.3", "The modified loss is E + (h/4) slope²",
        PAPER + "test_proposition_3_3_modified_loss_by_the_slope"),
    _proved("remark 3.4, proposition A.10", "Minima of E are minima of the modified loss, and both have the same zeros",
            PAPER + "test_proposition_A_10_shared_minima"),
    PaperClaim("remark 3.4", "Descent in the moderate regime does not leave the basin of a local minimum", (), (),
               "not tested"),
    _proved("lemmas A.1 to A.3, proposition A.4", "A recursion gives every correction f_l of the modified equation",
            EULER + "test_the_recursion_of_the_papers_appendix_is_wrong_from_f3_on",
            EULER + "test_f2_is_not_a_gradient",
            verdict="**holds** for f_1, **fails** beyond: f_2 is no gradient, as the lemmas assume"),
    _proved("proposition A.6", "The angle of the normal of the loss surface in terms of R_IG",
        PAPER + "test_proposition_A_6_angle"),
    _proved("corollary A.6.1, remark A.7", "m R_IG is the squared slope of the loss surface",
        PAPER + "test_corollary_A_6_1_slope"),
    _proved("remark A.8", "m R_IG is the determinant of the metric less 1", PAPER + "test_remark_A_8_metric"),
    _proved("proposition A.9", "The norm changes by at most h slope in a step",
        PAPER + "test_proposition_A_9_norm_bound"),
    _proved("proposition A.11", "For least squares, the modified loss through the neural tangent kernel",
            PAPER + "test_proposition_A_11_neural_tangent_kernel"),
    _proved("remark A.12", "The modified flow of the two-parameter model has a part towards the origin",
            PAPER + "test_the_two_parameter_model"),
    # the predictions
    PaperClaim("prediction 1", "R_IG is smaller relative to E where λ is larger",
               ("mlp.equal-loss.slope-falls-with-h.common-range", "mlp.within-width.ratio-falls-with-h.max-test",
                "mlp.within-width.ratio-falls-with-h.equal-time", "resnet.ratio-falls-with-h.max-test",
                "resnet.slope-falls-with-h.equal-loss")),
    PaperClaim("prediction 2", "Larger learning rates end at flatter optima",
               ("mlp.slope-falls-with-h.noise", "mlp.slope-falls-with-h.optimum", "resnet.slope-falls-with-h.max-test",
                "resnet.flatness")),
    PaperClaim("prediction 3", "Test accuracy is higher where λ is larger",
               ("mlp.within-width.accuracy-grows-with-h.max-test", "mlp.accuracy-grows-with-lambda.max-test",
                "resnet.accuracy-grows-with-h.max-test")),
    PaperClaim("prediction 4", "Optima of larger learning rates are more robust to noise on the parameters",
               ("mlp.accuracy-under-noise-grows-with-h",)),
    PaperClaim("section 2", "The test accuracy is controlled by λ", ("mlp.accuracy-depends-on-lambda-alone",)),
    # the two-parameter model
    PaperClaim("figure 1a", "Descent at the moderate rate is closer to the modified flow than to the gradient flow",
               ("two-parameter.closer-to-modified-flow.start-i.largest",
                "two-parameter.closer-to-modified-flow.start-ii.largest")),
    PaperClaim("figure 1a, section 5", "Explicit regularization reaches the flattest minimum",
               ("two-parameter.explicit-reaches-least-norm.start-i",
                "two-parameter.explicit-reaches-least-norm.start-ii")),
    PaperClaim("figure 1b", "R_IG/E at the end of training is smaller for larger learning rates",
               ("two-parameter.norm-falls-with-h.converged", "two-parameter.norm-falls-with-h.no-crossing")),
    PaperClaim("section 5", "No learning rate reaches minima as flat as explicit regularization does",
               ("two-parameter.no-rate-as-flat-as-explicit",)),
    PaperClaim("figure A.1", "At large rates descent jumps over the minima until it lands near one or diverges",
               ("two-parameter.ricochet", "two-parameter.phases.ricochet", "two-parameter.phases.divergent")),
    PaperClaim("figure A.2", "The test error is smaller for larger explicit rates",
               ("two-parameter.test-error-falls-with-mu.end", "two-parameter.test-error-falls-with-mu.fixed-time")),
    PaperClaim("appendix A.4", "The Euler steps of table A.1 follow the flows",
               ("two-parameter.euler-step-small-enough.explicit-start-ii",
                "two-parameter.euler-step-small-enough.modified-start-ii")),
    # networks on MNIST
    PaperClaim("figure 2a", "R_IG at maximum test accuracy falls as λ grows",
               ("mlp.r-ig-falls-with-lambda.max-test", "mlp.r-ig-falls-with-lambda.fit-at-max",
                "mlp.r-ig-falls-with-lambda.no-exclusion")),
    PaperClaim("figure 2b", "Test accuracy grows with λ",
               ("mlp.accuracy-grows-with-lambda.max-test", "mlp.accuracy-grows-with-lambda.fit-at-max",
                "mlp.accuracy-grows-with-lambda.no-exclusion")),
    PaperClaim("figure 3a", "Slopes at and around the optimum are smaller for larger learning rates",
               ("mlp.slope-falls-with-h.noise", "mlp.slope-falls-with-h.optimum")),
    PaperClaim("figure 3b", "The test accuracy under noise grows with the learning rate",
               ("mlp.accuracy-under-noise-grows-with-h",)),
    PaperClaim("figure 3c, section 4", "The explicit penalty raises the test accuracy of ResNet-18",
               ("resnet.penalty-raises-accuracy.h-0.02", "resnet.penalty-raises-accuracy.h-0.05",
                "resnet.penalty-raises-accuracy-7x7", "resnet.exact")),
    PaperClaim("figure 3c", "... by more than 12 points",
               ("resnet.boost-of-12-points", "resnet.boost-of-12-points.all-seeds")),
    PaperClaim("figure A.3a, appendix A.5", "The loss falls during training for all learning rates",
        ("mlp.decreases.loss",)),
    PaperClaim("figure A.3b, appendix A.5", "R_IG falls during training for all learning rates",
        ("mlp.decreases.r-ig",)),
    PaperClaim("figure A.3, appendix A.5", "R_IG/E falls during training for all learning rates",
        ("mlp.decreases.ratio",)),
    PaperClaim("figure A.3c", "λ R_IG/E is smaller for larger learning rates",
               ("mlp.weighted-ratio-falls-with-h.equal-steps", "mlp.weighted-ratio-falls-with-h.max-test",
                "mlp.weighted-ratio-falls-with-h.equal-time")),
    PaperClaim("figure A.3", "R_IG/E after equal steps is smaller for larger learning rates",
               ("mlp.within-width.ratio-falls-with-h.equal-steps", "mlp.ratio-falls-with-h.equal-steps")),
    PaperClaim("figure A.3d", "The parameter norm grows more slowly where R_IG is smaller",
               ("mlp.norm-growth-slows-with-r-ig",)),
    PaperClaim("figure A.3d", "The parameter norm reaches its plateau before the loss does",
               ("mlp.norm-plateaus-first.linear", "mlp.norm-plateaus-first.logarithmic")),
    PaperClaim("figure A.4a", "The test loss falls and rises again", ("mlp.rebound.test-loss",)),
    PaperClaim("figure A.4b", "R_IG of the test loss falls and rises again", ("mlp.rebound.test-r-ig",)),
    PaperClaim("figure A.4c", "R_IG/E is smaller for larger learning rates, at maximum test accuracy",
               ("mlp.within-width.ratio-falls-with-h.max-test", "mlp.ratio-falls-with-h.max-test")),
    PaperClaim("figure A.4d", "The test accuracy falls a little after its maximum", ("mlp.rebound.test-accuracy",)),
    PaperClaim("figure A.5", "R_IG/E is smaller for larger learning rates after a sufficiently long physical time",
               ("mlp.within-width.ratio-falls-with-h.equal-time", "mlp.within-width.ratio-falls-with-h.time-0.1",
                "mlp.within-width.ratio-falls-with-h.time-0.5", "mlp.within-width.ratio-falls-with-h.time-2")),
    PaperClaim("figure A.5, appendix A.5", "R_IG is smaller for larger learning rates at equal physical time",
               ("mlp.within-width.r-ig-falls-with-h.equal-time",)),
    PaperClaim("figure A.5, appendix A.5", "E is smaller for larger learning rates at equal physical time",
               ("mlp.within-width.e-falls-with-h.equal-time",)),
    PaperClaim("figure A.6", "R_IG falls as the learning rate grows",
               ("mlp.within-width.r-ig-falls-with-h.max-test", "mlp.r-ig-falls-with-h")),
    PaperClaim("figure A.6", "R_IG falls as the network grows",
               ("mlp.within-rate.r-ig-falls-with-width", "mlp.r-ig-falls-with-width",
                "mlp.within-rate.slope-falls-with-width")),
    PaperClaim("figure A.6", "Test accuracy grows with the learning rate",
               ("mlp.within-width.accuracy-grows-with-h.max-test", "mlp.accuracy-grows-with-h")),
    PaperClaim("figure A.6", "Test accuracy grows with the network", ("mlp.accuracy-grows-with-width",)),
    PaperClaim("figure A.6", "Networks with smaller R_IG test better",
               ("mlp.accuracy-falls-with-r-ig", "mlp.accuracy-falls-with-r-ig.given-lambda")),
    PaperClaim("figure A.6, top right", "... for all batch sizes up to the full batch",
               ("mlp.within-batch.accuracy-falls-with-r-ig", "mlp.accuracy-falls-with-r-ig.batch-sizes",
                "mlp.accuracy-falls-with-r-ig.large-batches", "mlp.full-batch")),
    # ResNet-18 on CIFAR-10
    PaperClaim("figure A.7a", "Test accuracy grows with the learning rate (ResNet-18)",
               ("resnet.accuracy-grows-with-h.max-test", "resnet.accuracy-grows-with-h.end")),
    PaperClaim("figure A.7b", "R_IG falls as the learning rate grows (ResNet-18)",
               ("resnet.r-ig-falls-with-h.max-test", "resnet.r-ig-falls-with-h.end")),
    PaperClaim("figure A.7c", "The paths of larger learning rates have smaller slopes (ResNet-18)",
               ("resnet.slope-falls-with-h.path", "resnet.slope-falls-with-h.max-test",
                "resnet.slope-falls-with-h.equal-loss")),
    PaperClaim("figure A.7e, f", "The networks interpolate (ResNet-18)", ("resnet.networks-fit",)),
    PaperClaim("figure A.8", "Test accuracy is higher where R_IG is smaller (ResNet-18)",
               ("resnet.accuracy-falls-with-r-ig.max-test", "resnet.accuracy-falls-with-r-ig.given-h")),
)  # fmt: skip

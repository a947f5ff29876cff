"""Options of passes are a value: what is given counts, whatever context stands around."""

import pytest

from tilewright.base.errors import ModelError
from tilewright.graph.pass_options import PassOptions
from tilewright.graph.passes import PASSES, fold_shift, fuse, passes_of, separate
from tilewright.network.build import build
from tilewright.network.extract import fused_tasks, prepare
from tilewright.network.schedules import DEFAULT, KINDS
from tilewright_tvm import relay, transform
from tilewright_tvm.relay import nn


def network() -> relay.Function:
    x = relay.var("x", shape=(1, 8))
    return relay.Function([x], nn.relu(nn.dense(x, relay.const([[1.0] * 8] * 4)) + 1.0))


def launches(**options) -> int:
    return len(build(network(), "llvm", verify=False, **options).plan.launches)


def test_a_build_counts_its_own_options_and_no_context():
    apart = PassOptions(disabled=("fuse",))
    with transform.PassContext(opt_level=0):
        assert launches() == 1 and launches(pass_options=apart) == 3
        assert len(relay.build(network(), "llvm", verify=False).plan.launches) == 3
    tasks = fused_tasks(network(), target="llvm", include_simple=True, pass_options=apart)
    assert len(tasks) == launches(pass_options=apart)


def test_passes_are_chosen_by_level_and_by_name():
    assert passes_of() == PASSES
    assert passes_of(PassOptions(2)) == tuple(
        p for p in PASSES if not p.__name__.startswith("fold_s")
    )
    assert fold_shift in passes_of(PassOptions(0, required=("fold_shift",)))
    assert passes_of(PassOptions(1))[-1] is separate
    assert passes_of(PassOptions(1, required=("fuse",)))[-1] is fuse
    more = passes_of(PassOptions(required=("eliminate_common",)))
    assert len(more) == len(PASSES) + 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (PassOptions(disabled=("fuze",)), "disabled=.*no such pass.*fuse"),
        (PassOptions(required=("FuseOps",)), "required=.*no such pass"),
        (PassOptions(disabled=("inline_calls",)), "no kernel can be made without it"),
    ],
)
def test_a_name_of_no_pass_is_refused(options, words):
    with pytest.raises(ModelError, match=words):
        prepare(network(), None, options)


class Watch:
    """Notes what runs, and leaves one pass out."""

    def __init__(self, without: str = "") -> None:
        self.without, self.seen = without, list[str]()

    def should_run(self, mod, info):
        return info.name != self.without

    def run_before_pass(self, mod, info):
        self.seen.append(info.name)

    def run_after_pass(self, mod, info):
        assert self.seen[-1] == info.name


def test_instruments_hear_our_names_and_in_a_context_those_of_tvm():
    own, theirs = Watch("canonicalize"), Watch("CanonicalizeOps")
    prepare(network(), None, PassOptions(instruments=(own,)))
    assert own.seen == [p.__name__ for p in PASSES if p.__name__ not in ("canonicalize", "fuse")]
    with transform.PassContext(instruments=[theirs]):
        relay.optimize(network())
    assert len(theirs.seen) == len(own.seen) + 1
    assert {"FoldConstant", "FuseOps", "SimplifyInference", "moves_last"} <= set(theirs.seen)


def test_only_the_default_schedule_ships_without_a_trial():
    assert [kind.name for kind in KINDS if kind.trusted] == ["default"] and KINDS[-1] is DEFAULT
    assert len(set(KINDS)) == 6

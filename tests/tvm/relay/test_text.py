"""Relay's text: what is printed is read back, what TVM prints means the same, the rest is refused
with its place."""

from __future__ import annotations

import inspect
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import tilewright
import tilewright_tvm
from graph.case import function, random_inputs, tensor
from graph.cases import CASES
from graph.drawing import networks
from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright.graph.left_out import LEFT_OUT, left_out
from tilewright.graph.op import TABLE
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from tilewright_tvm.relay.equality import first_difference
from tilewright_tvm.relay.text.operators import function_of


def read_back(mod: relay.IRModule) -> relay.IRModule:
    text = mod.astext()
    made = relay.parse(text)
    assert not first_difference(made, mod)
    assert made.astext() == text
    for name, f in mod.functions.items():
        assert [p.name_hint for p in made[name].params] == [p.name_hint for p in f.params]
    return made


@pytest.mark.sampled(132)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_operator_reads_back(case):
    read_back(relay.IRModule.from_expr(function(case.build())))


SMALLEST = (
    "resnet-18", "resnet-18-v1", "resnext-50", "mobilenet", "mobilenet_v2", "squeezenet-1.1",
    "inception_v3", "densenet-121", "resnet3d-18", "dcgan", "mlp", "dqn", "unet", "lstm",
    "vit-tiny", "bert-tiny", "gpt2-tiny",
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_networks_read_back(name):
    read_back(relay.testing.get_network(name)[0])


def test_a_network_with_its_weights_reads_back_before_and_after_fusion():
    mod, params = relay.testing.lstm.get_workload(2, 4)
    bound = relay.bind_params(mod, params)
    again = read_back(bound)
    data = random_inputs(bound["main"])
    np.testing.assert_array_equal(
        relay.evaluate(again["main"], data), relay.evaluate(bound["main"], data)
    )
    fused = relay.optimize(mod, params)
    assert "fused @" in str(fused)
    read_back(fused)


@pytest.mark.slow
@examples(25)
@given(networks())
def test_random_networks_read_back(drawn):
    again, values = read_back(drawn), random_inputs(drawn["main"])
    found, wanted = (relay.evaluate(m["main"], values) for m in (again, drawn))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_text_is_that_of_tvm():
    x, w = tensor("x", 1, 3, 4, 4), tensor("w", 2, 3, 3, 3)
    f = function(nn.softmax(nn.conv2d(x, w, padding=1) + 0.5, axis=1))
    lines = f.astext().split("\n")
    assert lines[0] == '#[version = "0.0.5"]'
    assert lines[2:] == [
        "  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=2, kernel_size=[3, 3]) "
        "/* ty=Tensor[(1, 2, 4, 4), float32] */;",
        "  %1 = add(%0, 0.5f /* ty=float32 */) /* ty=Tensor[(1, 2, 4, 4), float32] */;",
        "  nn.softmax(%1, axis=1) /* ty=Tensor[(1, 2, 4, 4), float32] */",
        "}",
    ]


NUMBERS = {
    "42": ("int32", 42), "-42i16": ("int16", -42), "42i64": ("int64", 42), "7u8": ("uint8", 7),
    "2147483648": ("int64", 1 << 31), "3f": ("float32", 3), "3f16": ("float16", 3),
    "-1e-05f64": ("float64", -1e-05), "inff": ("float32", np.inf), "--10": ("int32", 10),
    "True": ("bool", True), "1.5bf16": ("bfloat16", 1.5),
}  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers(text):
    dtype, value = NUMBERS[text]
    made = relay.parse_expr(text)
    assert made.dtype == dtype and made.data.item() == value
    again = relay.parse_expr(made.astext())
    assert again.dtype == dtype and again.data.item() == value


def test_notes_may_stand_where_types_do():
    x = tensor("x", 2, 3)
    mod = relay.IRModule.from_expr(relay.Function([x], nn.relu(x) * x))
    text = mod.astext(annotate=lambda node: f"/* {node.op.name} */")
    assert "nn.relu(%x) /* nn.relu */;" in text and "multiply(%0, %x) /* multiply */" in text
    assert not first_difference(relay.parse(text), mod)
    assert "/*" not in mod.astext(annotate=lambda node: "")


def test_constants_are_behind_the_text_or_are_given():
    x = tensor("x", 2, 3)
    weight = relay.const(np.arange(6, dtype="float32").reshape(2, 3))
    mod = relay.IRModule.from_expr(relay.Function([x], x * weight + weight))
    read_back(mod)
    short = mod.astext(show_meta_data=False)
    assert short.count("meta[relay.Constant][0]") == 2 and "#[metadata]" not in short
    with pytest.raises(ModelError, match=r"line 3.*does not hold that constant.*show_meta_data"):
        relay.parse(short)
    given = relay.parse(short, init_meta_table={"relay.Constant": [weight]})
    assert not first_difference(given, mod)
    other = relay.parse(
        "def @main(%y: Tensor[(2, 3), float32]) { @g(%y) }", "text",
        relay.IRModule({"g": mod["main"]}),
    )  # fmt: skip
    assert set(other.functions) == {"main", "g"}


def test_metadata_of_tvm_is_read():
    """Made by hand as TVM lays it out: a map, a list, constants with types, arrays apart."""
    text = relay.Function([], relay.const(np.float32([1, 2]))).astext()
    head, _, meta = text.partition("#[metadata]")
    swapped = meta.replace('"root": 1', '"root":   1')
    made = relay.parse_expr(f"{head}#[metadata]{swapped}")
    np.testing.assert_array_equal(made.body.data, [1, 2])


def test_scopes_branches_functions_and_definitions_in_any_order():
    mod = relay.parse(
        """
        /* a comment /* in a comment */ */
        def @main(%c: bool, %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
          let %y: Tensor[(2), float32] = @twice(%x); // a call
          %0 = if (%c) { %y } else { let %z = -%y; %z * 2f };
          %1 = (%0, fn (%a: Tensor[(2), float32]) { %a + 1f }(%y));
          %1.0 - %1.1
        }
        def @twice(%x: Tensor[(2), float32]) { add(%x, %x) }
        """
    )
    x = np.float32([1, 2])
    run = relay.create_executor("debug", mod).evaluate()
    for c, wanted in ((True, 2 * x - (2 * x + 1)), (False, -4 * x - (2 * x + 1))):
        np.testing.assert_array_equal(run(np.array(c), x).numpy(), wanted)
    assert not first_difference(relay.parse(mod.astext()), mod)


def test_what_tvm_leaves_out_of_calls_is_what_it_means_there():
    def read(call: str) -> relay.Call:
        free = "free_var %a: Tensor[(2, 3, 3), float32]; free_var %b: Tensor[(2, 3, 3), float32]; "
        return relay.parse_expr(free + call)

    assert read("nn.batch_matmul(%a, %b)").attrs.transpose_b is False
    assert read("nn.batch_matmul(%a, %b, transpose_b=True)").attrs.transpose_b is True
    assert read("nn.leaky_relu(%a)").attrs.alpha == 0.25
    assert read("take(%a, 1)").shape == ()
    assert read("nn.pad(%a, 0.5f, pad_width=[[0, 0], [1, 1], [0, 2]])").attrs.pad_value == 0.5
    assert read("nn.dropout(%a).0").shape == (2, 3, 3)
    assert read("split(%a, indices_or_sections=3, axis=1).2").shape == (2, 1, 3)
    assert read("topk(%a, k=2).0").dtype == "float32"
    assert read("reshape(%a, newshape=[-1, 9], allowzero=None)").shape == (2, 9)


def test_names_of_any_kind_and_open_types():
    names = ("1", "input:0", "base/x", "layer.0.w", "layer", "a b", 'say "x"', "Ünï", "x.0")
    parts = [tensor(n, 2) for n in names]
    read_back(relay.IRModule.from_expr(relay.Function(parts, relay.concatenate(parts, 0))))
    pair = relay.var("x", relay.TupleType([relay.TensorType((2,))] * 2))
    other = tensor("x.0", 2)
    f = relay.Function([pair, other], relay.TupleGetItem(pair, 0) - other)
    read_back(relay.IRModule.from_expr(f))
    n = relay.var("data", shape=(relay.Any(), relay.Any("n"), 4))
    f = relay.Function([n], nn.softmax(n))
    assert "%data: Tensor[(?, n, 4), float32]) -> Tensor[(?, ?, 4), float32]" in str(f)
    again = read_back(relay.IRModule.from_expr(f))["main"]
    assert dict(again.params[0].open_extents) == {0: "batch", 1: "n"}
    x = relay.var("x")
    text = relay.Function([x], nn.relu(x)).astext()
    assert relay.parse_expr(text).params[0].type_annotation is None


def test_tuples_read_several_times_take_lines_not_exponential_text():
    value = tensor("x", 2)
    for _ in range(40):
        value = relay.TupleGetItem(relay.Tuple([value, value]), 0)
    both = relay.Tuple([relay.Tuple([value, value])] * 2)
    text = relay.IRModule.from_expr(function(both)).astext()
    assert len(text) < 20_000
    read_back(relay.parse(text))


@pytest.mark.slow
def test_long_chains_of_functions_read_back_in_any_order():
    defined = [f"def @f{k}(%x: float32) {{ @f{k + 1}(%x) }}" for k in range(200)]
    last = "def @f200(%x: float32) { nn.relu(%x) }"
    made = read_back(relay.parse("\n".join([*defined, last])))
    assert list(made.functions) == [f"f{k}" for k in range(201)]
    assert not first_difference(relay.parse("\n".join([last, *defined[::-1]]))["f0"], made["f0"])


def test_a_text_is_the_value_behind_its_definitions():
    fused = "fused @g(%a: float32) { nn.relu(%a) } "
    made = relay.parse_expr(f"free_var %x: float32; {fused} @g(@g(%x))")
    assert isinstance(made, relay.Call) and isinstance(made.op, relay.Function)
    assert relay.parse_expr(made.astext()).astext() == made.astext()
    assert isinstance(relay.parse_expr(f"{fused} fn (%x: float32) {{ @g(%x) }}").body, relay.Call)
    assert set(relay.parse(f"{fused} fn (%x: float32) {{ @g(%x) }}").functions) == {"main"}
    read_back(relay.IRModule({}))
    with pytest.raises(ModelError, match="line 1, column 1: a value is expected"):
        relay.parse_expr("")


X, N = tensor("x", 2, 3), relay.var("n", shape=(2,), dtype="int64")
CONDITION, COUNT = relay.var("c", shape=(), dtype="bool"), relay.var("k", shape=(), dtype="int32")
DECIDED = {
    "argwhere": relay.argwhere(X),
    "unique": relay.unique(N),
    "unique, as they come": relay.unique(N, is_sorted=False, return_counts=True),
    "one of unique": relay.unique(N)[0] + relay.const(np.int64(1)),
    "tile": relay.tile(X, N),
    "reshape": nn.relu(relay.reshape(X, N)),
    "strided_slice": relay.strided_slice(X, N, relay.const(np.int64([2, 3]))),
    "topk": relay.topk(X, COUNT, ret_type="values"),
    "zeros": relay.zeros(N, "float32"),
    "if": relay.If(CONDITION, X, X + X),
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_values_decide_reads_back(name):
    mod = relay.IRModule.from_expr(function(DECIDED[name]))
    read_back(mod)


def test_nodes_that_wait_for_values_are_equal_where_they_call_the_same():
    assert not first_difference(relay.tile(X, N), relay.tile(X, N))
    assert first_difference(relay.tile(X, N), relay.reshape(X, N)) == (
        "tile(%0, %1) and reshape(%0, %1)"
    )
    assert not first_difference(relay.unique(N), relay.unique(N))
    assert first_difference(relay.unique(N), relay.unique(N, is_sorted=False))


def test_the_example_of_the_documentation_runs():
    page = (Path(__file__).parents[3] / "docs" / "tvm" / "languages.md").read_text()
    names: dict = {}
    code = re.search(r"```python\n(from tilewright\w* import relay\n.*?)```", page, re.DOTALL)
    exec(code[1], names)
    np.testing.assert_array_equal(names["result"].numpy(), [0, 3])


@pytest.mark.slow
def test_deep_networks_need_no_recursion():
    value = x = tensor("x", 2)
    for _ in range(3000):
        value = nn.relu(value)
    read_back(relay.IRModule.from_expr(relay.Function([x], value)))


REFUSED = {
    "def @main(%x: float32) {\n  relu(%x)\n}": "line 2, column 3: relu: there is no such operator",
    "def @main(%x: float32) {\n  %y\n}": "line 2, column 3: %y is not defined here",
    "fn (%x: float33) { %x }": "dtype 'float33' is not supported",
    "fn (%x: Tensor[(2), float32]) -> float32 { %x }": "has type Tensor.*, not float32",
    "nn.relu(1f, slope=2)": "column 1: nn.relu: unknown attribute slope. It has data",
    "free_var %x: float32; nn.conv2d(%x)": "1 arguments were given. It takes data, weight",
    "free_var %x: float32; nn.relu(%x, %x)": "2 values are given",
    "extern type List[A]": "extern is not read. Define it",
    "def @f() { 1 } def @f() { 2 }": "there is a @f already",
    "def @f() { @g() }": "@g: there is no such function",
    "type List[A] { Nil } type List[A] { Nil }": "a name for a data type that is not there yet",
    "type t { A } fn (%x: t) { match (%x) { B => 1 } }": "a pattern: _, %x, .* or a constructor",
    "type t { A(int32) } fn (%x: t) { match (%x) { A => 1 } }": "0 patterns for 1 fields",
    "ref_write(1)": "ref_write of 1 values. Give 2",
    "type t[A] { A(A) } fn (%x: t) { 1 }": "0 types are given, it has 1 variables",
    "fn (%x: float32) { from_onnx(%x) }": "from_onnx is not read. A node whose shapes",
    "free_var %x: int32; loops.while_loop(%x)": "loops.while_loop is not read",
    "let %x = 1": "the text ends",
    "fn (%x: float32) { %x ": "} is expected, the text ends",
    "1 + $": r"column 5: '\$' begins nothing",
    '"unfinished': "Close the quotation marks",
    "/* unfinished": "a comment does not end",
    "32768i16": "int16 does not hold it",
    "3.5e38f": "float32 does not hold it",
    "add": "def @main.* is expected, 'add' stands there",
    "add(nn.relu, 1f)": "nn.relu is an operator, a value is needed",
    "meta[tir.SizeVar][0]": "a tir.SizeVar is not read",
    "(1, 2).7": "the tuple has 2 values",
    "(1)(2)": "it is no function",
    "1 #[metadata] {": "metadata.*damaged",
    "zeros(shape=[99999, 99999])": "it asks for 9999800001 elements",
    "free_var %x: Tensor[(9999999), int8]; split(%x, indices_or_sections=9999999)": "at most",
    "fn (%x: Tensor[(99999999999), int8]) { %x }": "the shape is too large",
    "(" * 500: "nested more than",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_refusals_say_where_and_what(text):
    with pytest.raises(tilewright_tvm.error.DiagnosticError, match=REFUSED[text]) as found:
        relay.parse(text)
    assert "line" in str(found.value) and len(str(found.value)) < 1000


HOSTILE = (
    "def @main() {" + "(" * 20_000, "fn () {" * 3000, "-" * 20_000 + "1", "%x" + ".0" * 20_000,
    "1" * 20_000, "/*" * 20_000, '"' + "\\" * 20_000, "1 #[metadata]" + "[" * 20_000,
    "".join(f"def @f{k}() {{ @f{k + 1}() }}" for k in range(1000)) + "def @f1000() { @f0() }",
    "%" + "a/" * 20_000,
    "fn (%x: Tensor[(" + "2, " * 20_000 + "), int8]) { %x }", "{" * 20_000, "\0",
    "a" * 1_000_000 + "()", "%" + "a" * 1_000_000, "@" + "a" * 1_000_000 + "()",
    "add(1, 2, " + "a" * 1_000_000 + "=1)", "9223372036854775808i64", "1" + " " * 1_000_000,
)  # fmt: skip


@pytest.mark.slow
def test_hostile_texts_are_one_error_soon():
    for text in HOSTILE:
        start = time.monotonic()
        try:
            relay.parse(text)
        except ModelError as error:
            assert len(str(error)) < 1000
        assert time.monotonic() - start < 60


WORDS = (
    "999999999999", "-1", "1e400f", "nanf", "?", "[", "(", "{", "fn", "if", "let", "def", "fused",
    "meta[relay.Constant][9]", '"x"', "/*", "//", "True", "None", "=", ";", ",", "free_var",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_changed_texts_are_read_or_refused(seed):
    rng = random.Random(seed)
    texts = [relay.IRModule.from_expr(function(c.build())).astext(False) for c in CASES[seed::9]]
    for _ in range(400):
        parts = re.split(r"(\s+|[(),\[\]{};=])", rng.choice(texts))
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(parts))
            parts[at] = rng.choice((*WORDS, "", parts[rng.randrange(len(parts))], parts[at][:-1]))
        if rng.random() < 0.2:
            parts = parts[: rng.randrange(len(parts))]
        try:
            relay.parse("".join(parts))
        except ModelError as error:
            assert "line" in str(error), error


def test_names_of_tvm():
    text = "def @main(%x: float32) { %x }"
    for door in (tilewright_tvm.parser.parse, tilewright_tvm.parser.fromtext, relay.parser.parse):
        assert set(door(text).functions) == {"main"}
    assert relay.parse_expr("nn.conv2d") is relay.op.get("nn.conv2d")
    assert relay.parse_expr("@foo").name_hint == "foo"


def test_networks_are_saved_as_json():
    x = tensor("x", 3)
    f = relay.Function([x], relay.add(x, relay.const(np.float32([1, 2, 3]))))
    mod = relay.IRModule.from_expr(f)
    again = tilewright_tvm.ir.load_json(tilewright_tvm.ir.save_json(mod))
    assert isinstance(again, relay.IRModule) and not first_difference(again, mod)
    for value in (f, f.body, relay.Tuple([f.body, x]), relay.const(2)):
        found = tilewright_tvm.ir.load_json(tilewright_tvm.ir.save_json(value))
        assert type(found) is type(value)
        assert relay.analysis.structural_equal(found, value, map_free_vars=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is no JSON"), ("[" * 100_000, "it is no JSON"), ("[]", "did not write it"),
        ('{"root": 1, "nodes": []}', "did not write it.*relay.parse"),
        ('{"tilewright": "relay.Expr", "text": 3}', "did not write it"),
        ('{"tilewright": ["relay.Expr"], "text": ""}', "did not write it"),
        ('{"tilewright": "relay.Expr", "text": "nowhere(1)"}', "line 1, column 1"),
    ],
)  # fmt: skip
def test_json_of_others_is_refused(text, reason):
    with pytest.raises(ModelError, match=reason):
        tilewright_tvm.ir.load_json(text)


def test_what_is_no_network_is_not_saved():
    with pytest.raises(ModelError, match=r"ir.save_json\(Target\): it is no network"):
        tilewright_tvm.ir.save_json(tilewright.Target("llvm"))


@pytest.mark.parametrize("head", ["v0.0.4\n", "\nv0.0.4\n", "v0.0.5\n", '#[version = "0.0.5"]\n'])
def test_texts_of_every_version_begin_with_it(head):
    function = "fn (%x: Tensor[(1, 3), float32]) { nn.relu(%x) }"
    for text in (function, f"def @main{function.removeprefix('fn ')}"):
        assert not first_difference(relay.fromtext(head + text), relay.fromtext(text))


@pytest.mark.parametrize(
    "text", ["v0 + 1", "fn (%x: int32) { %x + v0 }", "nn.relu(nn.relu(exp))", "fn () { (exp, 1) }"]
)
def test_an_error_says_its_place_once(text):
    with pytest.raises(ModelError) as caught:
        relay.fromtext(text)
    assert str(caught.value).count("from_string, line ") == 1


@pytest.mark.parametrize("name", TABLE)
def test_what_text_leaves_out_is_what_row_and_function_have_alike(name: str) -> None:
    row, function = TABLE[name], function_of(name)
    told = inspect.signature(function).parameters if function is not None else {}
    alike = {k: v for k, v in row.attrs.items() if k not in told or told[k].default == v}
    assert left_out(name, row.attrs) == {**alike, **LEFT_OUT.get(name, {})}

"""Functions of floats: LLVM's intrinsics, the C library's, and polynomials for float32.

In: a call and its operands.  Out: its value.  exp, log, tanh and erf of float32 are inlined helpers
in the module; the same operations for one lane and for many, so vectorising changes no bit.  Errors
are below 1.1 ulp (exp, log), 1.5 (tanh) and 2.5 (erf); infinities, NaN and subnormals behave as in
C.  Read next: `llvm.py`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from tilewright.base.dtype import FLOAT32
from tilewright.codegen.llvm_text import FunctionText, Module, float_literal, refusal, typed
from tilewright.ir.expr import Expr

POLYNOMIALS = ("exp", "log", "tanh", "erf")

# Minimax fits (Lawson iteration in 120-bit arithmetic), constant term first, rounded to float32.
_EXP = (0.5, 0.166665181517601, 0.04166620597243309, 0.008368889801204205, 0.001395049155689776)
_LOG = (
    0.3333333134651184, -0.250008225440979, 0.20001234114170074, -0.16623298823833466,
    0.14201553165912628, -0.1316058337688446, 0.1276332587003708, -0.07635651528835297,
)  # fmt: skip
_TANH = (
    -0.3333328366279602, 0.13331490755081177, -0.05374349653720856, 0.020650586113333702,
    -0.005717044696211815,
)  # fmt: skip
_ERF = (
    1.1283791065216064, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923,
    0.005189535673707724, -0.0008020842215046287, 7.889122935011983e-05,
)  # fmt: skip
_LOG_ERFC = (
    -0.00035371878766454756, -1.1270400285720825, -0.6382256746292114, -0.10303737223148346,
    0.02180531993508339, -0.002939607948064804, 0.00018557407020125538,
)  # fmt: skip


# Functions that LLVM lowers to instructions, or lane by lane to calls of the C library
_INTRINSICS = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil",
    "round": "rint", "pow": "pow", "sin": "sin", "cos": "cos",
}  # fmt: skip
_LIBRARY = ("tanh", "erf")


def function(text: FunctionText, node: Expr, operands: Sequence[str]) -> str:
    """The value of a call of a function in `ir.expr.FUNCTIONS`."""
    name, dtype, lanes = node.attr, node.dtype, node.lanes
    t, element = typed(dtype, lanes), typed(dtype, 1)
    if dtype.compute is not dtype or not dtype.is_float:
        raise refusal(node, f"{name} of {dtype} must happen in another type")
    if name == "rsqrt":
        one = float_literal(1.0, dtype)
        if lanes > 1:
            one = text.splat(one, element, lanes)
        return text.pure(f"fdiv {t} {one}, {text.intrinsic('sqrt', t, operands)}")
    if dtype is FLOAT32 and name in POLYNOMIALS:
        full = helper(text.module, name, lanes)
        return text.pure(f"call {t} @{full}({t} {operands[0]})")
    if name in _INTRINSICS:
        return text.intrinsic(_INTRINSICS[name], t, operands)
    if name not in _LIBRARY:
        raise refusal(node, f"the function {name!r} is unknown")
    text.module.declare(name, element, element)
    x = operands[0]
    if lanes == 1:
        return text.pure(f"call {element} @{name}({element} {x})")
    parts = [text.pure(f"extractelement {t} {x}, i64 {k}") for k in range(lanes)]
    values = [text.pure(f"call {element} @{name}({element} {v})") for v in parts]
    return text.pack(values, element)


def helper(module: Module, name: str, lanes: int) -> str:
    """The helper for `name` on `lanes` lanes of float32, added to the module at first use."""
    tag = "f32" if lanes == 1 else f"v{lanes}f32"
    full = f"tilewright.{name}.{tag}"
    if full not in module.helpers:
        module.helpers[full] = ""  # its own helpers come behind it
        lines = _BODIES[name]
        module.helpers[full] = _Text(module, lanes, tag).define(full, lines)
    return full


class _Text:
    """Expands the bodies below: ``a = op x y`` with float constants, for scalars or vectors.

    F and I stand for the float and integer types, B for booleans; ``poly(x; name)`` is a Horner
    chain of fused multiply-adds, ``fma(...)`` and so on are intrinsics, ``exp(x)`` another helper.
    """

    def __init__(self, module: Module, lanes: int, tag: str) -> None:
        self.module, self.lanes, self.tag = module, lanes, tag
        wide = "{}" if lanes == 1 else f"<{lanes} x {{}}>"
        self.types = {k: wide.format(v) for k, v in (("F", "float"), ("I", "i32"), ("B", "i1"))}
        self.lines: list[str] = []
        self.count = 0

    def define(self, name: str, body: str) -> str:
        for line in body.strip().splitlines():
            self.line(line.strip())
        f = self.types["F"]
        text = "\n".join(self.lines)
        attributes = "alwaysinline nounwind memory(none)"
        return f"define internal {f} @{name}({f} %x) {attributes} {{\n{text}\n}}\n"

    def line(self, line: str) -> None:
        target, _, rhs = line.partition(" = ")
        if not rhs:
            self.lines.append(f"  ret {self.types['F']} {self.operand(target.split()[1], 'F')}")
            return
        call = re.fullmatch(r"(\w+)\((.*)\)", rhs)
        if call is None:
            self.lines.append(f"  %{target} = {self.instruction(rhs)}")
        elif call[1] == "poly":
            x, coefficients = call[2].split("; ")
            self.horner(target, x, globals()[coefficients])
        else:
            self.lines.append(f"  %{target} = {self.call(call[1], call[2].split(', '))}")

    def instruction(self, rhs: str) -> str:
        """``op T a b`` with more types where LLVM wants them: select, bitcast, compare."""
        op, *words = rhs.split()
        if op in ("icmp", "fcmp"):
            test, t, a, b = words
            return f"{op} {test} {self.types[t]} {self.operand(a, t)}, {self.operand(b, t)}"
        if op == "select":
            c, t, a, b = words
            t_text = self.types[t]
            return (
                f"select {self.types['B']} %{c}, {t_text} {self.operand(a, t)}, "
                f"{t_text} {self.operand(b, t)}"
            )
        if op in ("bitcast", "sitofp"):
            source, a, to = words
            return f"{op} {self.types[source]} {self.operand(a, source)} to {self.types[to]}"
        t, *args = words
        return f"{op} {self.types[t]} {', '.join(self.operand(a, t) for a in args)}"

    def call(self, name: str, args: Sequence[str]) -> str:
        f = self.types["F"]
        if name in POLYNOMIALS:
            full = helper(self.module, name, self.lanes)
        else:
            full = f"llvm.{'fmuladd' if name == 'fma' else name}.{self.tag}"
            self.module.declare(full, f, *[f] * len(args))
        operands = ", ".join(f"{f} {self.operand(a, 'F')}" for a in args)
        return f"call {f} @{full}({operands})"

    def horner(self, target: str, x: str, coefficients: Sequence[float]) -> None:
        last = repr(coefficients[-1])
        for k, c in reversed(list(enumerate(coefficients[:-1]))):
            name = target if k == 0 else f"{target}.{k}"
            self.lines.append(f"  %{name} = {self.call('fma', [last, x, repr(c)])}")
            last = name

    def operand(self, word: str, t: str) -> str:
        """A name, or a constant of the type `t` in every lane."""
        if not re.match(r"-?[\d.]|-?inf|nan", word):
            return f"%{word}"
        if t == "F":
            rounded = struct.unpack("f", struct.pack("f", float(word)))[0]
            text = f"0x{struct.pack('>d', rounded).hex().upper()}"
        else:
            text = str(int(word, 0))
        element = {"F": "float", "I": "i32", "B": "i1"}[t]
        return text if self.lanes == 1 else f"splat ({element} {text})"


# exp(x) = 2^k exp(r), |r| <= log(2)/2.  Adding 1.5 * 2^23 rounds to an integer and leaves it in the
# low bits; 2^k is applied in two halves, so that the result may be subnormal or overflow.
_BODIES = {
    "exp": """
        above = fcmp ogt F x 89.0
        x1 = select above F 89.0 x
        below = fcmp olt F x1 -104.0
        x2 = select below F -104.0 x1
        shifted = fma(x2, 1.4426950408889634, 12582912.0)
        k = fsub F shifted 12582912.0
        minus = fneg F k
        r1 = fma(minus, 0.693145751953125, x2)
        r = fma(minus, 1.4286068203094172e-06, r1)
        p = poly(r; _EXP)
        r2 = fmul F r r
        q = fma(p, r2, r)
        e = fadd F q 1.0
        bits = bitcast F shifted I
        i = sub I bits 1262485504
        half = ashr I i 1
        rest = sub I i half
        b1 = add I half 127
        b2 = add I rest 127
        s1 = shl I b1 23
        s2 = shl I b2 23
        f1 = bitcast I s1 F
        f2 = bitcast I s2 F
        y1 = fmul F e f1
        y = fmul F y1 f2
        ret y
    """,
    # x = 2^k (1 + r), 1 + r in sqrt(1/2)..sqrt(2)
    "log": """
        tiny = fcmp olt F x 1.1754943508222875e-38
        scaled = fmul F x 8388608.0
        x1 = select tiny F scaled x
        bias = select tiny F -23.0 0.0
        bits = bitcast F x1 I
        from = sub I bits 1060439283
        exponent = ashr I from 23
        shift = shl I exponent 23
        mbits = sub I bits shift
        m = bitcast I mbits F
        k1 = sitofp I exponent F
        k = fadd F k1 bias
        r = fadd F m -1.0
        p = poly(r; _LOG)
        r2 = fmul F r r
        r3 = fmul F r2 r
        low = fmul F k 1.4286068203094172e-06
        a = fma(p, r3, low)
        b = fma(r2, -0.5, a)
        c = fadd F b r
        y1 = fma(k, 0.693145751953125, c)
        unbounded = fcmp oeq F x inf
        y2 = select unbounded F inf y1
        zero = fcmp oeq F x 0.0
        y3 = select zero F -inf y2
        valid = fcmp oge F x 0.0
        y = select valid F y3 nan
        ret y
    """,
    "tanh": """
        t = fabs(x)
        s = fmul F x x
        p = poly(s; _TANH)
        xs = fmul F x s
        near = fma(p, xs, x)
        t2 = fadd F t t
        e = exp(t2)
        e1 = fadd F e 1.0
        d = fdiv F 2.0 e1
        far1 = fsub F 1.0 d
        far = copysign(far1, x)
        small = fcmp olt F t 0.625
        y = select small F near far
        ret y
    """,
    "erf": """
        t = fabs(x)
        s = fmul F x x
        p = poly(s; _ERF)
        near = fmul F p x
        above = fcmp ogt F t 3.9375
        t1 = select above F 3.9375 t
        q = poly(t1; _LOG_ERFC)
        e = exp(q)
        far1 = fsub F 1.0 e
        far = copysign(far1, x)
        large = fcmp oge F t 1.0
        y = select large F far near
        ret y
    """,
}

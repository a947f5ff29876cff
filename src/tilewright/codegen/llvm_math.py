"""Functions of floats: LLVM's intrinsics, the C library's, and polynomials for float32.

In: a call and its operands.  Out: its value.  exp, log, tanh and erf of float32 are inlined helpers
in the module; the same operations for one lane and for many, so vectorising changes no bit.  Errors
are below 1.1 ulp (exp, log), 1.5 (tanh) and 2.5 (erf); infinities, NaN and subnormals behave as in
C.  Read next: `llvm.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtype import FLOAT32
from tilewright.codegen.llvm_lanewise import Lanewise
from tilewright.codegen.llvm_text import FunctionText, Module, float_literal, refusal, suffix, typed
from tilewright.ir.expr import Expr

POLYNOMIALS = ("exp", "log", "tanh", "erf")

# Minimax fits (Lawson iteration in 120-bit arithmetic), constant term first, rounded to float32.
_COEFFICIENTS = {
    "exp": (
        0.5, 0.166665181517601, 0.04166620597243309, 0.008368889801204205, 0.001395049155689776,
    ),
    "log": (
        0.3333333134651184, -0.250008225440979, 0.20001234114170074, -0.16623298823833466,
        0.14201553165912628, -0.1316058337688446, 0.1276332587003708, -0.07635651528835297,
    ),
    "tanh": (
        -0.3333328366279602, 0.13331490755081177, -0.05374349653720856, 0.020650586113333702,
        -0.005717044696211815,
    ),
    "erf": (
        1.1283791065216064, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923,
        0.005189535673707724, -0.0008020842215046287, 7.889122935011983e-05,
    ),
    "log_erfc": (
        -0.00035371878766454756, -1.1270400285720825, -0.6382256746292114, -0.10303737223148346,
        0.02180531993508339, -0.002939607948064804, 0.00018557407020125538,
    ),
}  # fmt: skip

# Functions that LLVM lowers to instructions, or lane by lane to calls of the C library
_INTRINSICS = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil",
    "round": "rint", "nearest": "rint", "pow": "pow", "sin": "sin", "cos": "cos",
}  # fmt: skip
_LIBRARY = (
    "tanh", "erf", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
)  # fmt: skip


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
    if name == "product":  # without "contract", which would allow a multiply-add
        return text.pure(f"fmul {t} {operands[0]}, {operands[1]}")
    if name == "fmod":
        return text.pure(f"frem {t} {operands[0]}, {operands[1]}")
    if name in _INTRINSICS:
        return text.intrinsic(_INTRINSICS[name], t, operands)
    if name not in _LIBRARY:
        raise refusal(node, f"the function {name!r} is unknown")
    name = f"{name}f" if dtype is FLOAT32 else name
    text.module.declare(name, element, element)
    x = operands[0]
    if lanes == 1:
        return text.pure(f"call {element} @{name}({element} {x})")
    parts = [text.pure(f"extractelement {t} {x}, i64 {k}") for k in range(lanes)]
    values = [text.pure(f"call {element} @{name}({element} {v})") for v in parts]
    return text.pack(values, element)


def helper(module: Module, name: str, lanes: int) -> str:
    """The helper for `name` on `lanes` lanes of float32, added to the module at first use."""
    t = typed(FLOAT32, lanes)
    full = f"tilewright.{name}.{suffix(t)}"
    if full not in module.helpers:
        module.helpers[full] = ""  # its own helpers come behind it
        body = Lanewise(module, lanes, _COEFFICIENTS, lambda inner: helper(module, inner, lanes))
        module.helpers[full] = body.define(full, "F", "F", _BODIES[name])
    return full


# exp(x) = 2^k exp(r), |r| <= log(2)/2.  Adding 1.5 * 2^23 rounds to an integer and leaves it in the
# low bits; 2^k is applied in two halves, so that the result may be subnormal or overflow.  What is
# less than any subnormal is chosen, not computed: a processor takes a hundred cycles to round it,
# and most of a masked softmax is that.
_BODIES = {
    "exp": """
        above = fcmp ogt F x 89.0
        x1 = select above F 89.0 x
        below = fcmp olt F x1 -104.0
        x2 = select below F 0.0 x1
        shifted = fma(x2, 1.4426950408889634, 12582912.0)
        k = fsub F shifted 12582912.0
        minus = fneg F k
        r1 = fma(minus, 0.693145751953125, x2)
        r = fma(minus, 1.4286068203094172e-06, r1)
        p = poly(r; exp)
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
        y2 = fmul F y1 f2
        y = select below F 0.0 y2
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
        p = poly(r; log)
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
        p = poly(s; tanh)
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
        p = poly(s; erf)
        near = fmul F p x
        above = fcmp ogt F t 3.9375
        t1 = select above F 3.9375 t
        q = poly(t1; log_erfc)
        e = exp(q)
        far1 = fsub F 1.0 e
        far = copysign(far1, x)
        large = fcmp oge F t 1.0
        y = select large F far near
        ret y
    """,
}

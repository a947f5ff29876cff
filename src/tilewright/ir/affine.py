"""Integer simplification by canonical linear forms with floor division and modulo.

In: an index or condition and the inclusive range of each variable.  Out: the shortest equal
expression the rules find.  A linear form is a dict atom -> coefficient plus a constant; atoms are
variables, `x // k`, `x % k` with canonical x, or anything opaque.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, inf

from tilewright.ir import expr as E
from tilewright.ir.expr import COMPARE, Expr

Interval = tuple[float, float]


def _is_positive(divisor: Expr) -> bool:
    return divisor.op == "const" and divisor.attr > 0


def _takes(product: Expr, x: Expr, k: Expr) -> bool:
    """Whether it is (x // k) * k."""
    if product.op != "mul":
        return False
    pairs = (product.args, product.args[::-1])
    return any(q.op == "floordiv" and q.args[0] is x and q.args[1] is k is f for q, f in pairs)


class Linear:
    """`sum(coefficient * atom) + constant` over integers."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[Expr, int] | None = None, constant: int = 0) -> None:
        self.terms = terms if terms is not None else {}
        self.constant = constant

    def add(self, other: Linear, scale: int = 1) -> Linear:
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + c * scale
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Linear(terms, self.constant + other.constant * scale)

    def scaled(self, k: int) -> Linear:
        if k == 0:
            return Linear()
        return Linear({a: c * k for a, c in self.terms.items()}, self.constant * k)


class Simplifier:
    """Simplifies under `ranges`: variable -> (least, greatest) value, inclusive.

    The memo is kept, so one simplifier should serve one kernel.
    """

    def __init__(self, ranges: Mapping[Expr, tuple[int, int]]) -> None:
        self.ranges = dict(ranges)
        self._known: dict[frozenset[tuple[Expr, int]], float] = {}  # terms -> greatest value
        self._linear: dict[Expr, Linear] = {}
        self._simple: dict[Expr, Expr] = {}
        self._intervals: dict[Expr, Interval] = {}

    # -- public ----------------------------------------------------------------------------------
    def __call__(self, node: Expr) -> Expr:
        """An equal expression, at most as long in most cases."""
        done = self._simple.get(node)
        if done is None:
            done = self._simple[node] = self._simplify(node)
            self._simple[done] = done
        return done

    def interval(self, node: Expr) -> Interval:
        """Inclusive bounds of an integer expression; infinite where nothing is known."""
        if not node.dtype.is_index or node.lanes > 1:
            return (-inf, inf)
        return self._bound(self.linear(node))

    def linear(self, node: Expr) -> Linear:
        done = self._linear.get(node)
        if done is None:
            done = self._linear[node] = self._recombine(self._to_linear(node))
        return done

    def is_multiple(self, node: Expr, k: int) -> bool:
        """Whether `node` is provably a multiple of k."""
        form = self.linear(node)
        return form.constant % k == 0 and all(
            c % k == 0 or self._atom_multiple(a, k // gcd(c, k)) for a, c in form.terms.items()
        )

    def assuming(self, condition: Expr) -> Simplifier:
        """A simplifier for code that runs only where `condition` holds."""
        limits: list[tuple[Linear, float]] = []
        for c in E.conjuncts(condition):
            if c.op in ("lt", "le") and c.lanes == 1 and c.args[0].dtype.is_index:
                form = self.linear(c.args[0]).add(self.linear(c.args[1]), -1)
                limits.append((form, -form.constant - (1 if c.op == "lt" else 0)))
            elif c.op == "eq" and c.args[0].op == "var" and c.args[1].op == "const":
                limits.append((Linear({c.args[0]: 1}), float(c.args[1].attr)))
        if not limits:
            return self
        inner = Simplifier(self.ranges)
        inner._known = dict(self._known)
        for form, hi in limits:
            if len(form.terms) == 1:
                ((atom, k),) = form.terms.items()
                if k == 1 and atom in inner.ranges:
                    lo, top = inner.ranges[atom]
                    inner.ranges[atom] = (lo, max(lo, min(top, int(hi))))
                    continue
            inner._known[frozenset(form.terms.items())] = hi
        return inner

    # -- internals -------------------------------------------------------------------------------
    def _atom_multiple(self, atom: Expr, k: int) -> bool:
        if atom.op == "floormod" and atom.args[1].op == "const":
            return int(atom.args[1].attr) % k == 0 and self.is_multiple(atom.args[0], k)
        return False

    def _simplify(self, node: Expr) -> Expr:
        if node.op in ("var", "const"):
            if node.op == "var" and node in self.ranges:
                lo, hi = self.ranges[node]
                if lo == hi:
                    return E.const(lo, node.dtype)
            return node
        if node.dtype.is_index and node.lanes == 1 and node.op in (
            "add", "sub", "mul", "floordiv", "floormod"
        ):  # fmt: skip
            return self.to_expr(self.linear(node), node.dtype)
        args = tuple(self(a) for a in node.args)
        if node.op in ("min", "max") and node.dtype.is_index and node.lanes == 1:
            least, most = self._bound(self.linear(args[0]).add(self.linear(args[1]), -1))
            if most <= 0 or least >= 0:
                return args[0] if (most <= 0) == (node.op == "min") else args[1]
        if node.op in COMPARE and args[0].dtype.is_index and node.lanes == 1:
            decided = self._compare(node.op, args[0], args[1])
            if decided is not None:
                return E.const(decided)
        return E.rebuild(node, args)

    def _compare(self, op: str, a: Expr, b: Expr) -> bool | None:
        lo, hi = self._bound(self.linear(a).add(self.linear(b), -1))
        table: dict[str, tuple[bool, bool]] = {  # (surely true, surely false)
            "lt": (hi < 0, lo >= 0),
            "le": (hi <= 0, lo > 0),
            "gt": (lo > 0, hi <= 0),
            "ge": (lo >= 0, hi < 0),
            "eq": (lo == hi == 0, lo > 0 or hi < 0),
            "ne": (lo > 0 or hi < 0, lo == hi == 0),
        }
        yes, no = table[op]
        return True if yes else (False if no else None)

    def _bound(self, form: Linear) -> Interval:
        lo = hi = float(form.constant)
        for atom, c in form.terms.items():
            a, b = self._atom_interval(atom)
            lo += c * a if c > 0 else c * b
            hi += c * b if c > 0 else c * a
        if self._known and len(form.terms) > 1:
            known = self._known.get(frozenset(form.terms.items()))
            if known is not None:
                hi = max(lo, min(hi, known + form.constant))
        return lo, hi

    def _atom_interval(self, atom: Expr) -> Interval:
        done = self._intervals.get(atom)
        if done is None:
            done = self._intervals[atom] = self._compute_interval(atom)
        return done

    def _compute_interval(self, atom: Expr) -> Interval:
        if atom.op == "var":
            return self.ranges.get(atom, (-inf, inf))
        if atom.op in ("floordiv", "floormod") and _is_positive(atom.args[1]):
            k = atom.args[1].attr
            lo, hi = self._bound(self.linear(atom.args[0]))
            if atom.op == "floordiv":
                return (lo // k if lo > -inf else lo, hi // k if hi < inf else hi)
            return (lo, hi) if lo >= 0 and hi < k else (0, k - 1)
        if atom.op in ("min", "max"):
            (a, b), (c, d) = (self._bound(self.linear(x)) for x in atom.args)
            pick = min if atom.op == "min" else max
            return pick(a, c), pick(b, d)
        if atom.op in ("select", "if_then_else"):
            (a, b), (c, d) = (self._bound(self.linear(x)) for x in atom.args[1:])
            return min(a, c), max(b, d)
        if atom.op == "cast":
            source = atom.args[0]
            if source.dtype == "bool":
                return (0, 1)
            if source.dtype.is_index:
                return self._bound(self.linear(source))
        return (-inf, inf)

    def _to_linear(self, node: Expr) -> Linear:
        op = node.op
        if op == "const":
            return Linear({}, int(node.attr))
        if op == "var":
            lo, hi = self.ranges.get(node, (0, 1))
            return Linear({}, lo) if lo == hi else Linear({node: 1})
        if op in ("add", "sub"):
            return self.linear(node.args[0]).add(
                self.linear(node.args[1]), 1 if op == "add" else -1
            )
        if op == "mul":
            a, b = self.linear(node.args[0]), self.linear(node.args[1])
            if not b.terms:
                return a.scaled(b.constant)
            if not a.terms:
                return b.scaled(a.constant)
        elif op in ("floordiv", "floormod"):
            k = self.linear(node.args[1])
            if not k.terms and k.constant > 0:
                form = self.linear(node.args[0])
                split = self._divide if op == "floordiv" else self._modulo
                return split(form, k.constant, node.dtype)
        new = (
            self(node)
            if op in ("min", "max", "select", "if_then_else", "cast")
            else self._opaque(node)
        )
        if new.op == "const":
            return Linear({}, int(new.attr))
        if new is not node and new.op in ("add", "sub", "mul", "floordiv", "floormod", "var"):
            return self.linear(new)
        return Linear({new: 1})

    def _opaque(self, node: Expr) -> Expr:
        return E.rebuild(node, tuple(self(a) for a in node.args))

    def _divide(self, form: Linear, k: int, dtype: str) -> Linear:
        """form // k: whole multiples leave, then the rest loses what cannot change the quotient."""
        if k == 1:
            return form
        # coefficients above k leave a rest below k, as in _modulo, so that terms can cancel
        parts = {a: divmod(c, k) if c >= k or c % k == 0 else (0, c) for a, c in form.terms.items()}
        whole = Linear({a: q for a, (q, _) in parts.items() if q}, form.constant // k)
        rest = Linear({a: c for a, (_, c) in parts.items() if c}, form.constant % k)
        lo, hi = self._bound(rest)
        if lo > -inf and hi < inf and lo // k == hi // k:
            return whole.add(Linear({}, int(lo // k)))
        g, high, _ = self._separate(rest, k)
        if g > 1:
            if g == k:
                return whole.add(high)
            return whole.add(self._divide(high, k // g, dtype))
        inner = self._quotient(rest)
        if inner is not None:  # (r + x // m) // k is (r * m + x) // (m * k)
            m = int(inner.args[1].attr)
            scaled = rest.add(Linear({inner: 1}), -1).scaled(m).add(self.linear(inner.args[0]))
            return whole.add(self._divide(scaled, k * m, dtype))
        atom = E.make("floordiv", (self.to_expr(rest, dtype), E.const(k, dtype)), None, dtype)
        return whole.add(Linear({atom: 1}))

    def _modulo(self, form: Linear, k: int, dtype: str) -> Linear:
        if k == 1:
            return Linear()
        rest = Linear({a: c % k for a, c in form.terms.items() if c % k}, form.constant % k)
        lo, hi = self._bound(rest)
        if lo > -inf and hi < inf and lo // k == hi // k:
            return rest.add(Linear({}, -int(lo // k) * k))
        g, high, low = self._separate(rest, k)
        if g > 1:
            return self._modulo(high, k // g, dtype).scaled(g).add(low)
        inner = self._single(rest)
        divisor = inner.args[1] if inner is not None and inner.op == "floormod" else None
        if divisor is not None and divisor.op == "const" and divisor.attr % k == 0:
            assert inner is not None
            return self._modulo(self.linear(inner.args[0]), k, dtype)
        atom = E.make("floormod", (self.to_expr(rest, dtype), E.const(k, dtype)), None, dtype)
        return Linear({atom: 1})

    def _separate(self, form: Linear, k: int) -> tuple[int, Linear, Linear]:
        """(g, high, low): form = g * high + low, g | k and 0 <= low < g; g = 1 if none is found."""
        if not form.terms:
            return 1, form, Linear()
        for g in sorted({gcd(k, c) for c in form.terms.values()}, reverse=True):
            if g == 1:
                break
            high = Linear(
                {a: c // g for a, c in form.terms.items() if c % g == 0}, form.constant // g
            )
            low = Linear({a: c for a, c in form.terms.items() if c % g}, form.constant % g)
            lo, hi = self._bound(low)
            if lo >= 0 and hi < g:
                return g, high, low
        return 1, form, Linear()

    @staticmethod
    def _quotient(form: Linear) -> Expr | None:
        """The only quotient by a constant in `form`, if it counts once."""
        found = [a for a in form.terms if a.op == "floordiv"]
        if len(found) != 1 or form.terms[found[0]] != 1:
            return None
        return found[0] if _is_positive(found[0].args[1]) else None

    @staticmethod
    def _single(form: Linear) -> Expr | None:
        if form.constant or len(form.terms) != 1:
            return None
        ((atom, c),) = form.terms.items()
        return atom if c == 1 else None

    def _recombine(self, form: Linear) -> Linear:
        """(x // k) * k * m + (y % k) * m -> x * m where x and y differ by a multiple of k; two
        remainders that are one, see `_join`, likewise."""
        for atom, c in list(form.terms.items()):
            if atom.op != "floormod":
                continue
            x, k = atom.args
            if not _is_positive(k):
                other = next((m for m, d in form.terms.items() if d == c and _takes(m, x, k)), None)
                if other is not None:  # (x // n) * n + x % n, of an n that calls give
                    rest = form.add(Linear({other: c, atom: c}), -1)
                    return self._recombine(rest.add(self.linear(x), c))
                continue
            for other, d in form.terms.items():
                if other.op == "floordiv" and other.args[1] is k and d == c * k.attr:
                    whole = self.linear(other.args[0])
                    apart = self._up_to(whole.add(self.linear(x), -1), int(k.attr))
                    if not any(n % k.attr for n in (apart.constant, *apart.terms.values())):
                        rest = form.add(Linear({other: d, atom: c}), -1)
                        return self._recombine(rest.add(whole, c))
                if other.op == "floormod" and _is_positive(other.args[1]) and d == c * k.attr:
                    joined = self._join(other, atom)
                    if joined is not None:
                        rest = form.add(Linear({other: d, atom: c}), -1)
                        return self._recombine(rest.add(joined, c))
            quotient = self._divide(self.linear(x), int(k.attr), atom.dtype)
            whole = quotient.scaled(int(k.attr) * c)
            if whole.terms and all(form.terms.get(a, 0) == w for a, w in whole.terms.items()):
                rest = form.add(whole, -1).add(Linear({atom: c}), -1)
                return self._recombine(rest.add(self.linear(x), c))
        return form

    def _up_to(self, form: Linear, k: int) -> Linear:
        """A form that differs by a multiple of k: without remainders by multiples of k."""
        for atom, c in form.terms.items():
            if atom.op == "floormod" and atom.args[1].op == "const":
                x, m = atom.args
                if int(m.attr) % k == 0:
                    rest = form.add(Linear({atom: c}), -1)
                    return self._up_to(rest.add(self.linear(x), c), k)
        return form

    def _join(self, high: Expr, low: Expr) -> Linear | None:
        """(z % m) * k + y % k as a remainder by m * k, if z ends in the quotient that belongs to
        y % k, so that both come from one number."""
        (z, m), k = high.args, int(low.args[1].attr)
        whole = self._recombine(self.linear(z).scaled(k).add(Linear({low: 1})))
        if low in whole.terms:
            return None
        return self._modulo(whole, int(m.attr) * k, low.dtype)

    def to_expr(self, form: Linear, dtype: str) -> Expr:
        """The form as an expression: positive terms first, in a stable order of first use."""
        result: Expr | None = None
        for positive in (True, False):
            for atom, c in form.terms.items():
                if (c > 0) != positive:
                    continue
                node = E.cast(dtype, atom)
                size = c if c > 0 else -c
                term = node if size == 1 else E.binary("mul", node, E.const(size, dtype))
                if result is None:
                    result = term if positive else E.binary("mul", node, E.const(c, dtype))
                else:
                    result = E.binary("add" if positive else "sub", result, term)
        constant = E.const(form.constant, dtype)
        return constant if result is None else E.binary("add", result, constant)

"""Reads and writes of buffers: addresses, masks, strides, gathers.

In: flat indices, scalar or vector.  Out: loads as operands, stores as lines.  What a mask excludes
is neither read nor written: behind a branch for scalars, lane by lane for vectors.
Read next: `llvm_value.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.base.dtype import BOOL
from tilewright.codegen.llvm_index import Affine, Indices, plus
from tilewright.codegen.llvm_text import (
    ALIGNMENT,
    FunctionText,
    element_in_memory,
    lane_literal,
    refusal,
    suffix,
    typed,
    typed_in_memory,
    zero,
)
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer

_MAX_SHUFFLED_STRIDE = 4  # further apart, gathering single elements reads less


class Memory:
    """Buffers as one function sees them.

    stored:   buffers that the program writes; reads of others give the same value at any time
    pointers: buffer -> SSA name of its first element
    arrays:   buffer -> the same, of those allocated by this function
    mask:     the lanes for which the code at hand runs; None for all
    """

    def __init__(self, text: FunctionText, index: Indices, stored: set[Buffer]) -> None:
        self.text, self.index, self.stored = text, index, stored
        self.pure, self.emit = text.pure, text.emit
        self.pointers: dict[Buffer, str] = {}
        self.arrays: dict[Buffer, str] = {}
        self.mask: str | None = None
        self.mask_lanes = 1
        self._addresses: dict[tuple[Buffer, Affine], tuple[str, int]] = {}

    @contextmanager
    def masked(self, mask: str, lanes: int) -> Iterator[None]:
        """Inside, only the lanes of `mask` run; what is computed there is not used behind it."""
        outer = self.mask
        with self.text.scope():
            if outer is not None:
                mask = self.pure(f"and <{lanes} x i1> {outer}, {mask}")
            self.mask, self.mask_lanes = mask, lanes
            yield
            self.mask = outer

    def allocate(self, buffer: Buffer) -> bool:
        """Give `buffer` an array, the same one each time; whether it is a new one."""
        name = self.arrays.get(buffer)
        new = name is None
        if name is None:
            name = self.arrays[buffer] = f"%local{len(self.arrays)}"
            array = f"[{buffer.size} x {element_in_memory(buffer.dtype)}]"
            self.text.allocas.append(f"  {name} = alloca {array}, align {ALIGNMENT}")
        self.pointers[buffer] = name
        return new

    # -- addresses -------------------------------------------------------------------------------
    def address(self, buffer: Buffer, index: Affine) -> tuple[str, int]:
        """An element's pointer, and the bytes that it is known to be a multiple of."""
        key = buffer, index
        found = self._addresses.get(key)
        if found is None:
            steps = math.gcd(index[0], *(k for _, k in index[1])) * buffer.dtype.bytes
            align = min(steps & -steps, ALIGNMENT) if steps else ALIGNMENT
            found = self._addresses[key] = self._pointer(buffer, *index), align
            self.text.made.append((self._addresses, key))
        return found

    def _pointer(self, buffer: Buffer, offset: int, terms: tuple[tuple[int, int], ...]) -> str:
        base = self.pointers.get(buffer)
        if base is None:
            raise refusal(f"buffer {buffer!r}", "it is neither a parameter nor allocated here")
        element, inbounds = element_in_memory(buffer.dtype), "inbounds "
        if terms:
            low, high = self.index.bounds((0, terms))
            known = not isinstance(buffer.size, Expr)
            if low < 0 or not known or high > buffer.size:
                # the part without the constant may lie outside
                inbounds = ""
            total = self.index.word((0, terms))
            base = self.pure(f"getelementptr {inbounds}{element}, ptr {base}, i64 {total}")
        if not offset:
            return base
        return self.pure(f"getelementptr {inbounds}{element}, ptr {base}, i64 {offset}")

    def _pointers(self, buffer: Buffer, indices: list[Affine]) -> str:
        offsets = self.text.pack([self.index.word(i) for i in indices], "i64")
        element, start = element_in_memory(buffer.dtype), self.pointers[buffer]
        return self.pure(f"getelementptr {element}, ptr {start}, <{len(indices)} x i64> {offsets}")

    def _in_own_array(self, buffer: Buffer, index: Affine, lanes: int) -> bool:
        """Whether all lanes lie in an array of this function: those that do not run may then be
        read and written back, so that registers take the array's place, which a mask forbids.
        """
        low, high = self.index.bounds(index)
        return buffer in self.arrays and low >= 0 and high + lanes <= buffer.size

    # -- reads -----------------------------------------------------------------------------------
    def read(self, buffer: Buffer, index: Expr) -> str:
        """The value at `index`; zero, or anything, in lanes that do not run."""
        lanes = index.lanes
        if lanes == 1:
            value = self._read_scalar(buffer, self.index.affine(index))
        else:
            value = self._read_vector(buffer, index, lanes)
        if buffer.dtype is not BOOL:
            return value
        t = typed_in_memory(BOOL, lanes)
        return self.pure(f"icmp ne {t} {value}, {'zeroinitializer' if lanes > 1 else '0'}")

    def read_contiguous(
        self, buffer: Buffer, index: Affine, lanes: int, otherwise: str = ""
    ) -> str:
        """A vector of neighbours; `otherwise`, or anything, in lanes that do not run."""
        t, (pointer, align) = typed_in_memory(buffer.dtype, lanes), self.address(buffer, index)
        if self.mask is None:
            return self._load(buffer, t, pointer, align)
        flags = f"<{lanes} x i1>"
        if self._in_own_array(buffer, index, lanes):
            whole = self._load(buffer, t, pointer, align)
            if not otherwise:
                return whole
            return self.pure(f"select {flags} {self.mask}, {t} {whole}, {t} {otherwise}")
        name = f"llvm.masked.load.{suffix(t)}.p0"
        self.text.module.declare(name, t, "ptr", "i32", flags, t)
        other = otherwise or "zeroinitializer"
        rhs = f"call {t} @{name}(ptr {pointer}, i32 {align}, {flags} {self.mask}, {t} {other})"
        return self.emit(rhs) if buffer in self.stored else self.pure(rhs)

    def _load(self, buffer: Buffer, t: str, pointer: str, align: int) -> str:
        rhs = f"load {t}, ptr {pointer}, align {align}"
        return self.emit(rhs) if buffer in self.stored else self.pure(rhs)

    def _read_scalar(self, buffer: Buffer, index: Affine) -> str:
        if self.mask is None:
            return self._load_scalar(buffer, index)
        otherwise, test = zero(buffer.dtype), self._any_lane()
        return self.text.branch(
            test, element_in_memory(buffer.dtype),
            lambda: self._load_scalar(buffer, index), lambda: otherwise,
        )  # fmt: skip

    def _load_scalar(self, buffer: Buffer, index: Affine) -> str:
        return self._load(buffer, element_in_memory(buffer.dtype), *self.address(buffer, index))

    def _any_lane(self) -> str:
        lanes = self.mask_lanes
        bits = self.pure(f"bitcast <{lanes} x i1> {self.mask} to i{lanes}")
        return self.pure(f"icmp ne i{lanes} {bits}, 0")

    def _read_vector(self, buffer: Buffer, index: Expr, lanes: int) -> str:
        first, step = self.index.vector(index)
        element = element_in_memory(buffer.dtype)
        if step == 1:
            return self.read_contiguous(buffer, first, lanes)
        t = typed_in_memory(buffer.dtype, lanes)
        if step == 0:
            return self.text.splat(self._read_scalar(buffer, first), element, lanes)
        if self.mask is not None:
            return self._gather_masked(buffer, self.index.lanes(index), t)
        if step == -1:
            vector = self.read_contiguous(buffer, plus(first, (1 - lanes, ())), lanes)
            order = lane_literal([str(lanes - 1 - k) for k in range(lanes)], "i32")
            return self.pure(f"shufflevector {t} {vector}, {t} poison, <{lanes} x i32> {order}")
        low, high = self.index.bounds(first)
        near = step if step is not None and 2 <= step <= _MAX_SHUFFLED_STRIDE else 0
        fixed = not isinstance(buffer.size, Expr)
        if fixed and near and low >= 0 and high + near * lanes <= buffer.size:
            return self._read_strided(buffer, first, near, lanes)
        values = [self._load_scalar(buffer, i) for i in self.index.lanes(index)]
        return self.text.pack(values, element)

    def _read_strided(self, buffer: Buffer, first: Affine, step: int, lanes: int) -> str:
        """Every step-th element of one wide vector that lies inside the buffer."""
        wide = self.read_contiguous(buffer, first, lanes * step)
        t = typed_in_memory(buffer.dtype, lanes * step)
        order = lane_literal([str(step * k) for k in range(lanes)], "i32")
        return self.pure(f"shufflevector {t} {wide}, {t} poison, <{lanes} x i32> {order}")

    def _gather_masked(self, buffer: Buffer, indices: list[Affine], t: str) -> str:
        lanes = len(indices)
        flags, pointers = f"<{lanes} x i1>", f"<{lanes} x ptr>"
        name = f"llvm.masked.gather.{suffix(t)}.v{lanes}p0"
        self.text.module.declare(name, t, pointers, "i32", flags, t)
        where = self._pointers(buffer, indices)
        args = f"{pointers} {where}, i32 {buffer.dtype.bytes}, {flags} {self.mask}"
        rhs = f"call {t} @{name}({args}, {t} zeroinitializer)"
        return self.emit(rhs) if buffer in self.stored else self.pure(rhs)

    # -- writes ----------------------------------------------------------------------------------
    def write(self, buffer: Buffer, index: Expr, operand: str) -> None:
        """Store `operand`, of the buffer's type and as many lanes as `index` has."""
        lanes = index.lanes
        if buffer.dtype is BOOL:
            t = typed_in_memory(BOOL, lanes)
            operand = self.pure(f"zext {typed(BOOL, lanes)} {operand} to {t}")
        if lanes == 1:
            self._write_scalar(buffer, self.index.affine(index), operand)
        else:
            self._write_vector(buffer, index, operand)

    def _write_scalar(self, buffer: Buffer, index: Affine, operand: str) -> None:
        if self.mask is not None:
            reason = "a scalar store depends on a vector condition"
            raise refusal(f"buffer {buffer!r}", reason)
        pointer, align = self.address(buffer, index)
        t = element_in_memory(buffer.dtype)
        self.text.lines.append(f"  store {t} {operand}, ptr {pointer}, align {align}")

    def _write_vector(self, buffer: Buffer, index: Expr, operand: str) -> None:
        lanes = index.lanes
        t = typed_in_memory(buffer.dtype, lanes)
        first, step = self.index.vector(index)
        if step == 1:
            self._write_contiguous(buffer, first, lanes, t, operand)
        elif self.mask is not None:
            name = f"llvm.masked.scatter.{suffix(t)}.v{lanes}p0"
            where = self._pointers(buffer, self.index.lanes(index))
            self._write_masked(name, t, operand, f"<{lanes} x ptr>", where, buffer.dtype.bytes)
        else:
            for k, i in enumerate(self.index.lanes(index)):
                one = self.pure(f"extractelement {t} {operand}, i64 {k}")
                self._write_scalar(buffer, i, one)

    def _write_contiguous(
        self, buffer: Buffer, first: Affine, lanes: int, t: str, operand: str
    ) -> None:
        pointer, align = self.address(buffer, first)
        if self.mask is not None and not self._in_own_array(buffer, first, lanes):
            name = f"llvm.masked.store.{suffix(t)}.p0"
            self._write_masked(name, t, operand, "ptr", pointer, align)
            return
        if self.mask is not None:
            old = self.emit(f"load {t}, ptr {pointer}, align {align}")
            operand = self.emit(f"select <{lanes} x i1> {self.mask}, {t} {operand}, {t} {old}")
        self.text.lines.append(f"  store {t} {operand}, ptr {pointer}, align {align}")

    def _write_masked(
        self, name: str, t: str, operand: str, address: str, where: str, align: int
    ) -> None:
        flags = f"<{self.mask_lanes} x i1>"
        self.text.module.declare(name, "void", t, address, "i32", flags)
        args = f"{t} {operand}, {address} {where}, i32 {align}, {flags} {self.mask}"
        self.text.lines.append(f"  call void @{name}({args})")

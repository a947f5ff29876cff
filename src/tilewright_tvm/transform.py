"""`transform.PassContext` and `transform.Sequential`: options of builds, passes in a row.

In: passes under TVM's names (`relay/transform/transform.py`), or a user's own functions.  Out:
objects that map a module to a module and print what they did where that is asked.
Read next: `instrument.py`, `relay/transform/transform.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base import context
from tilewright.base.doors import check_arguments, door, open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.pass_options import PassInfo, watched

if TYPE_CHECKING:
    from tilewright.graph.expr import Function, IRModule


@dataclass(eq=False)
class PassContext:
    """opt_level: below 2 operators are not fused, below 3 batch norms are not folded into weights.

    config: further options by name; unknown ones are kept and ignored, as TVM's often do not apply.
    required_pass: names of passes that `relay.build` and `Sequential` run at any opt_level
    disabled_pass: names of those that they leave out, as "FuseOps" or "FoldScaleAxis"
    instruments: told before and after each pass that runs; see `instrument.py`.  One that raises on
                 entering or leaving ends all of them; those that entered are left
    """

    opt_level: int = 3
    required_pass: Collection[str] | None = None
    disabled_pass: Collection[str] | None = None
    instruments: Sequence[Any] | None = None
    config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for option in ("required_pass", "disabled_pass"):
            names = () if getattr(self, option) is None else getattr(self, option)
            is_list = isinstance(names, Collection) and not isinstance(names, str)
            if not is_list or not all(isinstance(n, str) for n in names):
                raise ModelError(
                    f"PassContext({option}={names!r})", "it is no list of names",
                    'Example: disabled_pass=["FuseOps"].',
                )  # fmt: skip
        self.config = {} if self.config is None else self.config
        if not isinstance(self.config, Mapping) or not isinstance(
            self.instruments, Sequence | None
        ):
            raise ModelError(
                "PassContext", "config is no dict, or instruments no list",
                'Example: config={"tir.UnrollLoop": {}}, instruments=[].',
            )  # fmt: skip

    def __enter__(self) -> PassContext:
        self._enter()
        context.push("pass", self)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("pass")
        self._leave()

    def override_instruments(self, instruments: Sequence[Any] | None) -> None:
        """Leaves the instruments there are, and enters these in their place; None: no others."""
        given = PassContext(instruments=instruments).instruments  # refused before any is left
        self._leave()
        self.instruments = given
        self._enter()

    def _enter(self) -> None:
        entered = []
        try:
            for each in self.instruments or ():
                for one in _with([each], "enter_pass_ctx"):
                    one.enter_pass_ctx()
                entered.append(each)
        except BaseException:
            self.instruments = None
            for each in _with(entered, "exit_pass_ctx"):
                each.exit_pass_ctx()
            raise

    def _leave(self) -> None:
        try:
            for each in _with(self.instruments or (), "exit_pass_ctx"):
                each.exit_pass_ctx()
        except BaseException:
            self.instruments = None
            raise

    @staticmethod
    def current() -> PassContext:
        """The innermost one that is entered; outside of any, one that always stands."""
        found: PassContext | None = context.current("pass") or context.current("outside")
        if found is None:
            found = PassContext()
            context.push("outside", found)
        return found


def _with(instruments: Sequence[Any], method: str) -> list[Any]:
    """Those that have a method, which instruments may leave out."""
    return [each for each in instruments if hasattr(each, method)]


class Pass:
    """What maps a module to a module; `info` says what it is called.

    A pass that is called by itself always runs.
    """

    @property
    def info(self) -> PassInfo:
        return PassInfo(type(self).__name__)

    def change(self, mod: IRModule) -> IRModule:
        """The changed module; `mod` stays as it is."""
        raise NotImplementedError

    def __call__(self, mod: IRModule) -> IRModule:
        self._require_module(mod, "there is nothing to change in it")
        instruments = PassContext.current().instruments or ()
        return watched(self.info, self._changed, mod, instruments)

    def _changed(self, mod: IRModule) -> IRModule:
        made = self.change(mod)
        self._require_module(made, "it is what the pass gave")
        return made

    def _require_module(self, mod: object, reason: str) -> None:
        if not hasattr(mod, "functions"):
            raise ModelError(
                f"{self.info.name}({type(mod).__name__})", f"it is no module, {reason}",
                "relay.IRModule.from_expr(function) makes one.",
            )  # fmt: skip


class Sequential(Pass):
    """Passes in order.

    In a `PassContext` one runs where the context's opt_level is at least its own, or the context
    requires it by name, and not where the context disables it.  Outside of any, all of them run.
    opt_level, name, required: its own `info`
    """

    @door(ModelError, "transform.Sequential")
    def __init__(
        self,
        passes: Sequence[Any] = (),
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
    ) -> None:
        for each in passes:
            if not isinstance(each, Pass):
                raise ModelError(
                    "transform.Sequential", f"a {type(each).__name__} is no pass",
                    "Use those of relay.transform, or transform.module_pass for your own.",
                )  # fmt: skip
        self.passes = tuple(passes)
        self._info = PassInfo(name, opt_level, tuple(required or ()))

    @property
    def info(self) -> PassInfo:
        return self._info

    def change(self, mod: IRModule) -> IRModule:
        for each in self.passes:
            if _is_enabled(each.info):
                mod = each(mod)
        return mod


def _is_enabled(info: PassInfo) -> bool:
    """By the innermost `PassContext`."""
    inside = context.current("pass")
    if inside is None:
        return True
    if info.name in (inside.disabled_pass or ()):
        return False
    return info.name in (inside.required_pass or ()) or inside.opt_level >= info.opt_level


class PrintIR(Pass):
    """Prints the module, behind `header`, and gives it back."""

    @door(ModelError, "transform.PrintIR")
    def __init__(self, header: str = "", show_meta_data: bool = False) -> None:
        self.header, self.show_meta_data = header, show_meta_data

    def change(self, mod: IRModule) -> IRModule:
        from tilewright_tvm.relay.text.whole import astext

        print(f"PrintIR({self.header})\n{astext(mod, self.show_meta_data)}")
        return mod


class _Own(Pass):
    """A user's function, or the method of a user's object, as a pass."""

    def __init__(self, info: PassInfo, change: Callable[[IRModule], IRModule]) -> None:
        self._info, self._change = info, change

    @property
    def info(self) -> PassInfo:
        return self._info

    def change(self, mod: IRModule) -> IRModule:
        return self._change(mod)


class ModulePass(_Own):
    """What `module_pass` makes."""


class FunctionPass(_Own):
    """What `function_pass` makes."""


def _of_module(run: Callable[..., Any], info: PassInfo) -> Pass:
    check_arguments(run, (None, None), f"pass {info.name}", ModelError)
    return ModulePass(info, lambda mod: run(mod, PassContext.current()))


def _of_functions(run: Callable[..., Any], info: PassInfo) -> Pass:
    check_arguments(run, (None, None, None), f"pass {info.name}", ModelError)

    def change(mod: IRModule) -> IRModule:
        found: dict[str, Function] = {
            name: run(function, mod, PassContext.current())
            for name, function in mod.functions.items()
        }
        return type(mod)(found)

    return FunctionPass(info, change)


def _decorator(
    wrap: Callable[[Callable[..., Any], PassInfo], Pass],
    method: str,
    given: Any,
    opt_level: int,
    name: str,
    required: Sequence[str] | None,
) -> Any:
    """A pass of the function `given`; of a class, one of each object that is made of it."""

    def decorate(what: Any) -> Any:
        info = PassInfo(
            name or getattr(what, "__name__", type(what).__name__), opt_level, tuple(required or ())
        )
        if not inspect.isclass(what):
            return wrap(what, info)
        if not hasattr(what, method):
            raise ModelError(f"pass {info.name}", f"the class has no method {method}", "Define it.")

        @functools.wraps(what, updated=())
        def make(*args: Any, **options: Any) -> Pass:
            return wrap(getattr(what(*args, **options), method), info)

        return make

    return decorate if given is None else decorate(given)


@door(ModelError, "transform.module_pass")
def module_pass(
    pass_func: Callable[..., Any] | None = None,
    opt_level: int = 0,
    name: str = "",
    required: Sequence[str] | None = None,
) -> Any:
    """A pass of `f(mod, ctx)`, or of a class with a method `transform_module(self, mod, ctx)`.

    Also a decorator with options: ``@module_pass(opt_level=1)``.
    """
    return _decorator(_of_module, "transform_module", pass_func, opt_level, name, required)


@door(ModelError, "transform.function_pass")
def function_pass(
    pass_func: Callable[..., Any] | None = None,
    opt_level: int = 0,
    name: str = "",
    required: Sequence[str] | None = None,
) -> Any:
    """A pass of `f(function, mod, ctx)`, applied to each function of a module, or of a class with a
    method `transform_function(self, function, mod, ctx)`."""
    return _decorator(_of_functions, "transform_function", pass_func, opt_level, name, required)


open_doors(globals(), ("PassContext",), ModelError)

"""`Decoder`: a compiled decoder that is fed with tokens, and knows where its caches are.

    run = Decoder(tilewright.open("llama.tar"))
    for token in run.generate([[128000, 9906]], 100):
        print(token)

In: a `Compiled` with inputs `tokens`, `position` and `last`, as `tilewright.load` makes of a
decoder.  Out: logits, tokens.  Nothing here imports the compiler.  Read next: `compiled.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tilewright.base.doors import door, is_integer
from tilewright.base.errors import DeviceError
from tilewright.runtime.ndarray import to_numpy
from tilewright.runtime.network.compiled import Compiled

NAMES = ("tokens", "position", "last")  # of its inputs
Choose = Callable[[np.ndarray], Any]  # logits [batch, vocabulary] -> tokens [batch]

# Whose position the caches of each are at: that of the last `Decoder` of it.
_HOLDERS: weakref.WeakKeyDictionary[Compiled, weakref.ref[Decoder]] = weakref.WeakKeyDictionary()


def greedy(logits: np.ndarray) -> np.ndarray:
    """Give the token that is the likeliest, of each text."""
    made: np.ndarray = np.argmax(logits, -1)
    return made


class Decoder:
    """A decoder and its caches, which hold what it was fed; texts of a batch go on together.

    Any number of tokens is fed: by the numbers of positions that the library has, `counts`, the
    last of them filled up.  What is behind `position` in the caches is never seen.

    run: the compiled decoder, whose caches are empty or begin anew here; it belongs to this object
    """

    @door(DeviceError, "Decoder")
    def __init__(self, run: Compiled) -> None:
        if tuple(spec.name for spec in run.inputs) != NAMES or not run.states:
            raise DeviceError(
                "Decoder", f"{run!r} takes other inputs than {', '.join(NAMES)}",
                'Compile a decoder: tilewright.load("llama-1b") or the folder of a model.',
            )  # fmt: skip
        plans = run.library.plans
        index = run.library.plan.given[0]
        self.run = run
        self.batch = run.inputs[0].shape[0]
        self.counts = tuple(sorted(plan.inputs[index].shape[1] for plan in plans))
        self.length = run.states[0].shape[2]
        rows = {p.inputs[index].shape[1]: p.outputs[p.returned[0]][0].shape[1] for p in plans}
        self._of_each = {n for n, made in rows.items() if n == made}
        self._every = max(self._of_each, default=0)
        plan = run.library.plan
        self._bounds = [b for b in plan.bounds if plan.inputs[b.input].name == NAMES[0]]
        self.position = 0
        _HOLDERS[run] = weakref.ref(self)

    def reset(self) -> None:
        """Let the text begin anew."""
        self._hold("reset")
        self.run.reset()
        self.position = 0

    def fork(self) -> Decoder:
        """Make another one with the same code and weights, which goes on from here by itself."""
        self._hold("fork")
        other = Decoder(self.run.fork())
        other.position = self.position
        return other

    def state(self) -> dict[str, np.ndarray]:
        """Copy caches and position to host memory; `set_state` takes them."""
        self._hold("state")
        return {**self.run.state(), NAMES[1]: np.array(self.position)}

    @door(DeviceError)
    def set_state(self, values: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, of this decoder or of another one of the same sizes.

        Raises DeviceError where something is missing or does not fit; then nothing is set.
        """
        caches = {name: value for name, value in values.items() if name != NAMES[1]}
        place, given = "set_state", values.get(NAMES[1], -1)
        missing = [spec.name for spec in self.run.states if spec.name not in caches]
        if missing or not (is_integer(given) and 0 <= int(given) <= self.length):
            told = f"{missing[0]} is missing" if missing else f"its position is {given!r:.40}"
            raise DeviceError(place, told, "Give what `state()` gave.")
        self._hold(place)
        self.run.set_state(caches)
        self.position = int(given)

    @door(DeviceError, strict=True)
    def back(self, count: int) -> None:
        """Forget the last `count` tokens, as what was guessed and is not so."""
        if not 0 <= count <= self.position:
            raise DeviceError(
                f"back({count})", f"it is {count} of {self.position} tokens", "Forget fewer."
            )
        self.position -= count

    def feed(self, tokens: Any, every: bool = False) -> np.ndarray:
        """Read tokens [batch, any number]; give the logits of what follows, [batch, vocabulary].

        every: of what follows each of them, [batch, number, vocabulary]; up to 16 at once
        Raises DeviceError for more than the caches hold, and for tokens of another shape or that
        are none; then nothing is written.
        """
        given = self._checked(tokens)
        if every and not self._every:
            raise DeviceError(
                "feed(every=True)", f"{min(self.counts)} positions at once have logits of one only",
                'Load it with fewer at once, too: shape={"tokens": [1, 64]}.',
            )  # fmt: skip
        made = []
        while left := given.shape[1]:
            sizes = [n for n in self.counts if not every or n <= self._every]
            size = next((n for n in sizes if n >= left), sizes[-1])
            part = min(size, left)
            for logits in self._part(given[:, :part], size, every or part == left):
                wanted = slice(0 if every else part - 1, part)
                made.append(logits[:, wanted] if size in self._of_each else logits)
            given = given[:, part:]
        return np.concatenate(made, 1) if every else made[-1][:, -1]

    @door(DeviceError, strict=True)
    def generate(self, tokens: Any, count: int, choose: Choose = greedy) -> Iterator[list[int]]:
        """Read tokens [batch, any number], then give `count` tokens of each text, one by one.

        choose: takes logits [batch, vocabulary], gives the tokens; default: the likeliest
        It ends before where the caches are full.  Raises DeviceError as `feed` does.
        """
        logits = self.feed(tokens)
        for k in range(count):
            chosen = np.asarray(choose(logits))
            if chosen.size != self.batch or chosen.dtype.kind not in "iu":
                raise DeviceError(
                    "generate(choose=)", f"it gave {chosen.dtype}{list(chosen.shape)}, which is "
                    f"not a token of each of {self.batch} texts", f"Give int64[{self.batch}].",
                )  # fmt: skip
            chosen = chosen.reshape(self.batch, 1)
            yield chosen[:, 0].tolist()
            if k + 1 < count:
                if self.position == self.length:
                    return
                logits = self.feed(chosen)

    def _part(self, tokens: np.ndarray, size: int, wanted: bool) -> list[np.ndarray]:
        """Run tokens, filled up to `size`: the logits, if they are wanted."""
        part = tokens.shape[1]
        filled = np.zeros((self.batch, size), "int64")
        filled[:, :part] = tokens
        first, last = (np.array([n] * self.batch, "int64") for n in (self.position, part - 1))
        given = filled, first, last
        made = self.run.computed(given, lambda buffers: to_numpy(buffers[:1]) if wanted else [])
        self.position += part
        return made

    def _checked(self, tokens: Any) -> np.ndarray:
        """Raises DeviceError for what cannot be fed."""
        self._hold("feed")
        try:
            given = np.asarray(tokens)
        except (TypeError, ValueError) as error:  # lists of several lengths
            raise DeviceError(
                "feed", f"tokens are no array ({str(error).partition('.')[0]})",
                f"Give int64[{self.batch}, any number]: texts go on together.",
            ) from None  # fmt: skip
        wrong = self._wrong(given)
        if wrong is not None:
            raise DeviceError(f"feed(tokens {given.dtype}{list(given.shape)})", *wrong)
        return given

    def _wrong(self, given: np.ndarray) -> tuple[str, str] | None:
        """Why these cannot be fed, and the way out; None where they can."""
        if given.ndim != 2 or given.shape[0] != self.batch:
            told = f"they are not {self.batch} lists of tokens"
            return told, f"Give int64[{self.batch}, any number]."
        if not given.shape[1]:
            return "there is nothing to go on from", "Give a token at least."
        if given.dtype.kind not in "iu":
            return "they are no whole numbers", "Give int64."
        whole = self.position + given.shape[1]
        if whole > self.length:
            return (
                f"with them it is {whole} positions, the caches hold {self.length}",
                'Begin anew with reset(), or load it with more: shape={"cache": ...}.',
            )
        for bound in self._bounds:
            wrong = bound.wrong(given)
            if wrong is not None:
                told = f"{wrong} is not from {bound.least} to {bound.most}"
                return told, "Give tokens of this model."
        return None

    def _hold(self, place: str) -> None:
        """Raises DeviceError where another `Decoder` has been made of the same run since."""
        holder = _HOLDERS.get(self.run)
        if holder is None or holder() is not self:
            raise DeviceError(
                place, "another Decoder was made of its run, and has its caches",
                "Make it of a fork: Decoder(run.fork()).",
            )  # fmt: skip

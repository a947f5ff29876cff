"""Stream tokens from a language model: a folder of safetensors, or random weights of a named size.

python examples/generate.py ./Llama-3.2-1B --prompt "The capital of France is" --device cuda
python examples/generate.py --size 1b --device cuda --weights bfloat16 --tune-minutes 1
python examples/generate.py --size tiny --tokens 64 --save tiny.tar
python examples/generate.py tiny.tar --tokens 64

No PyTorch is needed; text wants the package tokenizers, without it token numbers go in and out.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.base.errors import TilewrightError

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("model", nargs="?", help="folder of a model, or what --save wrote")
parser.add_argument("--size", default="tiny", choices=("tiny", "1b", "3b", "8b"),
                    help="without a model: of random weights")  # fmt: skip
parser.add_argument("--device", default=None, help="cuda, llvm; default: what is here")
NARROW = ("int8", "int4", "float8")
parser.add_argument("--weights", default=None, choices=("float32", "float16", "bfloat16", *NARROW))
parser.add_argument("--prompt", default="Once upon a time", help="text, or token numbers: 5,17,60")
parser.add_argument("--tokens", type=int, default=64, help="how many to make")
parser.add_argument("--batch", type=int, default=1, help="texts at once, all from the prompt")
parser.add_argument("--cache", type=int, default=512, help="positions that the caches hold")
parser.add_argument("--prefill", type=int, default=64, help="most positions of the prompt at once")
parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token")
parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
parser.add_argument("--tune-minutes", type=float, default=0.0, help="to search for before")
parser.add_argument("--log", default="generate.jsonl", help="file of results, appended to")
parser.add_argument("--save", default=None, help="file for the compiled model")
options = parser.parse_args()
for name, least in (("tokens", 1), ("batch", 1), ("cache", 1), ("prefill", 1), ("seed", 0)):
    if getattr(options, name) < least:
        parser.error(f"--{name} is less than {least}")
if not math.isfinite(options.temperature):
    parser.error(f"--temperature is {options.temperature}")


def ended(kind, error, trace):
    """Tell what was wrong in one line; of a reader that has gone nothing."""
    if issubclass(kind, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif issubclass(kind, KeyboardInterrupt):
        print("\ninterrupted", file=sys.stderr)
    elif issubclass(kind, TilewrightError):
        print(f"generate.py: {error}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


if __name__ == "__main__":
    sys.excepthook = ended

model = options.model or f"llama-{options.size}"
if Path(model).is_file():
    for name in ("batch", "cache", "prefill", "weights", "device", "tune_minutes", "save"):
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')}: {model} is compiled, and has its own")
    run = tw.open(model)
else:
    target = options.device or ("cuda" if tw.cuda().exist else "llvm")
    dtype = "bfloat16" if target.startswith("cuda") else "float32"
    narrow = options.weights if options.weights in NARROW else None
    dtype = dtype if narrow else options.weights or dtype
    sizes = {"tokens": sorted({1, min(options.prefill, options.cache)}), "cache": options.cache}
    net = tw.load(model, shape=sizes, batch=(options.batch,), dtype=dtype)
    if options.tune_minutes:
        minutes, log = options.tune_minutes, options.log
        print(tw.tune(net, target, minutes=minutes, log=log, weights=narrow))
    run = tw.compile(net, target, options.log if options.tune_minutes else None, weights=narrow)
    if options.save:
        run.save(options.save)
decoder = tw.Decoder(run)
print(f"{run}\n{len(run.library.plan.launches)} launches a step", file=sys.stderr)

# Text to token numbers and back, where the model has them.
tokenizer, ends, file = None, set(), Path(model) / "tokenizer.json"
if file.exists():
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(file))
    except ImportError:
        print("without tokenizers (pip install tokenizers) text is numbers", file=sys.stderr)
if tokenizer is not None:
    ids = tokenizer.encode(options.prompt).ids
    known = (tokenizer.token_to_id(name) for name in ("</s>", "<|end_of_text|>", "<|endoftext|>",
             "<|eot_id|>", "<|im_end|>", "<eos>"))  # fmt: skip
    ends = {token for token in known if token is not None}
elif all(part.strip().isdecimal() for part in options.prompt.split(",")):
    ids = [int(part) for part in options.prompt.split(",")]
else:
    ids = [byte % 256 for byte in options.prompt.encode()]

rng = np.random.default_rng(options.seed)


def choose(logits):
    """The likeliest token of each text, or one that is drawn."""
    if options.temperature <= 0:
        return np.argmax(logits, -1)
    noise = rng.gumbel(size=logits.shape)
    return np.argmax(logits / options.temperature + noise, -1)


made, shown, times = [], "", [time.perf_counter()]
for step in decoder.generate([ids] * options.batch, options.tokens, choose):
    times.append(time.perf_counter())
    if step[0] in ends:
        break
    made.append(step[0])  # of the first text
    if tokenizer is None:
        print(step[0], end=" ", flush=True)
        continue
    text = tokenizer.decode(made)
    if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # the rest of a letter is yet to come
        print(text[len(shown) :], end="", flush=True)
        shown = text
print()

steps = np.diff(times[1:])
print(f"prompt: {len(ids)} tokens in {times[1] - times[0]:.3f} s")
if len(steps):
    each = float(np.median(steps))
    plan = run.library.plan
    names = [kernel.name for kernel in run.report.kernels]  # of a table a step reads a row
    whole = [launch for launch in plan.launches if not names[launch.kernel].startswith("take")]
    read = {o.index for launch in whole for o in launch.operands if o.kind == "constant"}
    nbytes = sum(run.library.constants[k].nbytes for k in read)
    limit = run.target.limits.memory_bandwidth
    share = f", {nbytes / each / limit:.0%} of {limit * 1e-9:.0f} GB/s" if limit else ""
    print(
        f"then {options.batch / each:.1f} tokens/s: {each * 1e3:.3f} ms a step reads "
        f"{nbytes * 1e-9:.3f} GB of weights, {nbytes / each * 1e-9:.1f} GB/s{share}"
    )

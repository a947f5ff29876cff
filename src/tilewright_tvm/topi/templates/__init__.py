"""Templates by TVM's names, with its knobs: what logs of AutoTVM name, and what they mean here.

`autotvm.task.create("conv2d_nchw.cuda", args, target)` makes a task of one; no other task has it
among its sketches, but kernels of a network take over what was recorded with it.  The spaces are
AutoTVM's, knob for knob and entity for entity.  What a knob does to the loops is what it did there.
Where the original packed data or weights, constants are packed here, and data are read where they
lie.  Read next: `naming.py`, `workloads.py`, then one of the others.

| module | templates |
| --- | --- |
| `gpu_conv.py` | convolutions for CUDA with tiles of blocks, virtual threads, threads, elements |
| `winograd.py` | Winograd's convolution for CUDA, Mali and ARM |
| `gpu_products.py` | convolutions NHWC and HWCN, dense and batch_matmul for CUDA |
| `mali.py` | all others of Mali |
| `cpu_conv.py` | convolutions for x86 and ARM that tile channels and columns |
| `cpu_products.py` | dense and batch_matmul for x86 |
| `arm.py` | spatial packing for ARM |
| `elsewhere.py` | names that are refused, and what to use instead |
"""

from tilewright_tvm.topi.templates import arm as arm
from tilewright_tvm.topi.templates import cpu_conv as cpu_conv
from tilewright_tvm.topi.templates import cpu_products as cpu_products
from tilewright_tvm.topi.templates import elsewhere as elsewhere
from tilewright_tvm.topi.templates import gpu_conv as gpu_conv
from tilewright_tvm.topi.templates import gpu_products as gpu_products
from tilewright_tvm.topi.templates import mali as mali
from tilewright_tvm.topi.templates import winograd as winograd

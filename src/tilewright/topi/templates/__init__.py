"""Hand-written schedules: importing this package registers the anchor templates of every target.

In: nothing.  Out: entries in the registry of `schedule/template.py`, which has it imported, as
`base/plugins.py` says, when a template is looked up or registered: they come first.
Read next: `cpu_conv2d.py`, `cpu_tile.py`.
"""

from tilewright.topi.templates import gpu_gates as gpu_gates  # special
from tilewright.topi.templates import gpu_narrow as gpu_narrow
from tilewright.topi.templates import gpu_narrow_few as gpu_narrow_few
from tilewright.topi.templates import gpu_rows as gpu_rows  # before those for longer axes

# isort: split
from tilewright.topi.templates import attention_rows as attention_rows  # before matrix units

# isort: split
from tilewright.topi.templates import attention_atoms as attention_atoms  # before the other one

# isort: split
from tilewright.topi.templates import attention as attention  # before products: it is special

# isort: split
from tilewright.topi.templates import cpu_dots as cpu_dots  # before products of any type
from tilewright.topi.templates import cpu_narrow as cpu_narrow

# isort: split
from tilewright.topi.templates import cpu_blocks as cpu_blocks
from tilewright.topi.templates import cpu_conv2d as cpu_conv2d
from tilewright.topi.templates import cpu_dense as cpu_dense
from tilewright.topi.templates import cpu_depthwise as cpu_depthwise
from tilewright.topi.templates import gpu_atoms as gpu_atoms  # before the others: it is faster
from tilewright.topi.templates import gpu_atoms_conv as gpu_atoms_conv
from tilewright.topi.templates import gpu_few as gpu_few  # special

# isort: split
from tilewright.topi.templates import gpu_dots as gpu_dots  # where no matrix unit fits

# isort: split
from tilewright.topi.templates import gpu_tiles as gpu_tiles  # before smaller products

# isort: split
from tilewright.topi.templates import gpu_columns as gpu_columns
from tilewright.topi.templates import gpu_conv2d as gpu_conv2d
from tilewright.topi.templates import gpu_dense as gpu_dense
from tilewright.topi.templates import gpu_depthwise as gpu_depthwise
from tilewright.topi.templates import gpu_norms as gpu_norms
from tilewright.topi.templates import gpu_warp_groups as gpu_warp_groups
from tilewright.topi.templates import winograd as winograd

"""Compile kernels: once for a machine, or before they are shipped, and never twice at the same time.

Every kernel of the package is declared with one of these decorators:

- `kernel`: called from Python. Its machine code is stored, and found again by other processes and other machines.
- `part`: inlined into the kernels that call it.
- `subroutine`: called by kernels only, and compiled on its own; LLVM inlines it where that pays.
"""

from semistream.kernels.compiler.kernel import kernel as kernel
from semistream.kernels.compiler.kernel import part as part
from semistream.kernels.compiler.kernel import subroutine as subroutine

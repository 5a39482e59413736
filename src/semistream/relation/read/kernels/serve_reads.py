"""Read files in a compiled loop of system calls that never needs the Python interpreter."""

from typing import Any

import numpy as np
from numba.core import types

from semistream.kernels.array_types import Int64s, UInt64s
from semistream.kernels.compiler import kernel

_pread: Any = types.ExternalFunction("pread64", types.int64(types.int32, types.uintp, types.uint64, types.int64))
_take: Any = types.ExternalFunction("eventfd_read", types.int32(types.int32, types.uintp))
_give: Any = types.ExternalFunction("eventfd_write", types.int32(types.int32, types.uint64))


@kernel
def serve_reads(asked: int, done: int, requests: Int64s, got: Int64s, ends: Int64s, scratch: UInt64s) -> None:
    """Serve one turn of requests per signal on the eventfd ``asked``, then signal ``done``, until ``ends`` is set.

    ``requests[turn]`` are the requests of a turn, each (descriptor, address, bytes, offset), up to the first one of
    zero bytes. Turns are used cyclically. ``got[turn, i]`` is the number of bytes read, which is less than requested at
    the end of a file or after an error.
    """
    turn = 0
    while _take(np.int32(asked), np.uint64(scratch.ctypes.data)) == 0 and not ends[0]:
        for i in range(requests.shape[1]):
            descriptor, address, nbytes, offset = requests[turn, i]
            if nbytes == 0:
                break
            so_far = 0
            while so_far < nbytes:
                read = _pread(
                    np.int32(descriptor), np.uint64(address + so_far), np.uint64(nbytes - so_far), offset + so_far
                )
                if read <= 0:
                    break
                so_far += read
            got[turn, i] = so_far
        turn = (turn + 1) % requests.shape[0]
        _give(np.int32(done), np.uint64(1))

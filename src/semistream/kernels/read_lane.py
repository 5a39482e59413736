"""Read files in a loop that never asks for the interpreter, by the system's own calls."""

from typing import Any

import numpy as np
from numba import njit
from numba.core import types

from semistream.kernels.types import Int64s, UInt64s

STOP = -1  # instead of a descriptor

_pread: Any = types.ExternalFunction("pread64", types.int64(types.int32, types.uintp, types.uint64, types.int64))
_take: Any = types.ExternalFunction("eventfd_read", types.int32(types.int32, types.uintp))
_give: Any = types.ExternalFunction("eventfd_write", types.int32(types.int32, types.uint64))


@njit(cache=True, nogil=True)
def serve_reads(asked: int, done: int, requests: Int64s, got: Int64s, scratch: UInt64s) -> None:
    """Each time that the event ``asked`` comes, do the requests and raise the event ``done``, until one says `STOP`.

    A request is (descriptor, address, bytes, offset); the first one of no bytes ends them. ``got[i]`` is how many bytes
    were read: fewer than asked for at the end of a file, or if the system refused.
    """
    while _take(np.int32(asked), np.uint64(scratch.ctypes.data)) == 0 and requests[0, 0] != STOP:
        for i in range(requests.shape[0]):
            descriptor, address, nbytes, offset = requests[i]
            if nbytes == 0:
                break
            got[i] = 0
            while got[i] < nbytes:
                read = _pread(
                    np.int32(descriptor), np.uint64(address + got[i]), np.uint64(nbytes - got[i]), offset + got[i]
                )
                if read <= 0:
                    break
                got[i] += read
        _give(np.int32(done), np.uint64(1))

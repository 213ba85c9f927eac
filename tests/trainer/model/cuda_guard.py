"""A CUDA device guard that does nothing, for fake CUDA tensors on a PyTorch built without CUDA."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

_SOURCE = """\
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>)
"""


def load_cuda_guard(folder: Path) -> None:
    """Register the guard, compiled with PyTorch's headers into ``folder`` unless it is there; skip without a compiler.

    Backward passes on fake CUDA tensors abort the process, with this guard too.
    """
    if torch.backends.cuda.is_built():
        return
    library = folder / f"cuda_guard-{torch.__version__}.so"
    if not library.exists():
        compiler = shutil.which(os.environ.get("CXX", "g++"))
        if compiler is None:
            pytest.skip("PyTorch is built without CUDA, and there is no C++ compiler to make a device guard")
        root, temporary = Path(torch.__file__).parent, folder / f"{os.getpid()}.so"
        flags = ["-x", "c++", "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{root / 'include'}", f"-L{root / 'lib'}"]
        command = [compiler, *flags, "-", "-lc10", "-o", str(temporary)]
        done = subprocess.run(command, input=_SOURCE, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{compiler} cannot compile a device guard: {done.stderr[:200]}")
        temporary.replace(library)  # other workers may make it at the same time
    ctypes.CDLL(str(library))

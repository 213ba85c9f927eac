"""The FlexAttention kernels of each pattern, as PyTorch generates them for an H100, with Triton and without a GPU.

``python -m tests.trainer.model.kernels.triton_child compile`` compiles the forward and the backward kernel in bfloat16
for sm_90. With ``interpret`` and ``TRITON_INTERPRET=1``, Triton's interpreter runs them on the CPU in float16, because
its bfloat16 is wrong, and result and gradients are compared with those of ``attend``. Both print JSON, a line per case;
further words select the cases that have them in their names.

PyTorch's compiler asks a GPU for nothing but its properties. Here they are stated. Autograd traces on the CPU, because
its engine needs a device for others; the graphs of both passes are then moved to a fake CUDA device and compiled.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import torch
from torch import Tensor, fx

H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, warp_size=32, multi_processor_count=132, total_memory=80 << 30,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
    shared_memory_per_block_optin=227 << 10, L2_cache_size=50 << 20,
)  # fmt: skip

STATED: dict[str, Any] = {
    "get_device_properties": lambda *_: H100,
    "get_device_capability": lambda *_: (H100.major, H100.minor),
    "is_bf16_supported": lambda *_, **__: True,
    "set_device": lambda _: None,
    "_DeviceGuard": lambda _: nullcontext(),
}
for name, stated in STATED.items():  # before the compiler is imported, which stores some of them
    setattr(torch.cuda, name, stated)

import triton  # noqa: E402
from torch._inductor import compile_fx, config, scheduler  # noqa: E402
from torch._inductor.async_compile import AsyncCompile  # noqa: E402
from torch._inductor.codecache import PyCodeCache  # noqa: E402
from torch._inductor.runtime import triton_helpers, triton_heuristics  # noqa: E402
from torch.nn.attention import flex_attention as of_torch  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime.driver import driver  # noqa: E402

from tests.trainer.model.dense import cut, right_padded  # noqa: E402
from tests.trainer.model.test_model_fake_cuda import load_cuda_guard  # noqa: E402
from trainer.model.context import Context, make_context  # noqa: E402
from trainer.model.kernels import flex  # noqa: E402
from trainer.model.pattern import Pattern  # noqa: E402
from trainer.model.patterns import BlockGlobal, Local, Span, TGlobal, Window  # noqa: E402
from trainer.model.patterns.merged import Merged  # noqa: E402

TARGET = GPUTarget("cuda", 90, 32)
ROWS, LENGTH, HEADS, WIDTH, SIDES = 2, 500, 2, 64, 200
BLOCKS = {"XBLOCK": 1, "YBLOCK": 64}
"""Sizes with which kernels that are not of attention are interpreted; on a GPU, PyTorch would measure several."""


class Case(NamedTuple):
    """A pattern with inputs: q ``(B, L, H, D)``, k and v with the side keys."""

    pattern: Pattern
    context: Context
    q: Tensor
    k: Tensor
    v: Tensor


class Kernel(NamedTuple):
    """A generated kernel: Triton's function and the options of its decorator."""

    options: dict[str, Any]
    function: Any


Launch = Callable[[Kernel, Sequence[Any]], object]
"""Gets a kernel and its arguments: tensors, then sizes; for attention, the three sizes of its grid."""


def cases(dtype: torch.dtype) -> Iterator[tuple[str, Case]]:
    """Every pattern on whole rows of whole tiles, and on padded rows of several documents."""
    patterns = [Window(128), Span(127, 64), Local(63), TGlobal(63, 16), BlockGlobal(128, 16), Merged(Span(127, 0))]
    for pattern in patterns:
        for name in ("whole", "packed and padded"):
            torch.manual_seed(0)
            whole, merged = name == "whole", isinstance(pattern, Merged)
            length = 512 if whole else LENGTH
            real = right_padded([length, length // 3], length)
            chosen = torch.rand(real.shape) < 0.02 if isinstance(pattern, Window) else None
            context = make_context() if whole else make_context(real, cut(real, 0), chosen)
            sides = length // pattern.block if isinstance(pattern, TGlobal) else (256 if whole else SIDES) * merged
            if merged and not whole:
                beside = right_padded([SIDES, SIDES // 2], SIDES)
                context = context._replace(side_mask=beside, side_segments=cut(beside, 1))
            biases = tuple(torch.randn(HEADS, len(part), dtype=dtype) for part in pattern.offsets(length))
            q, k, v = torch.randn(3, ROWS, length + sides, HEADS * (1 + merged), WIDTH, dtype=dtype)
            k, v = k[:, :, :HEADS], v[:, :, :HEADS]  # grouped queries of merged attention
            yield f"{pattern.pattern}, {name}", Case(pattern, context._replace(biases=biases), q[:, :length], k, v)


def attend(case: Case, launch: Launch) -> list[Tensor]:
    """Compute ``flex.attend`` and its gradients by the code for a GPU, whose kernels ``launch`` runs."""

    def backend(traced: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        for node in traced.graph.nodes:
            if node.target is torch.ops.higher_order.flex_attention:  # a result for the backward pass, as on a GPU
                node.args = (*node.args[:6], {**node.args[6], "OUTPUT_LOGSUMEXP": True}, *node.args[7:])
        return cast(Callable[..., Any], compile_fx.compile_fx(traced, inputs, inner_compile=compile_for_gpu))

    def load(_: object, name: str, source: str, device_str: str = "cuda") -> SimpleNamespace:
        kernel = getattr(PyCodeCache.load(source), name)
        return SimpleNamespace(run=lambda *args, stream: launch(kernel, args))

    def keep(**options: Any) -> Callable[[Any], Kernel]:
        return partial(Kernel, options)

    torch._dynamo.reset()
    kernel = torch.compile(of_torch.flex_attention, backend=backend, dynamic=False)
    with ExitStack() as patches:
        patches.enter_context(patch.object(flex, "flex_attention", kernel))
        patches.enter_context(patch.object(AsyncCompile, "triton", load))
        for decorator in ("template", "pointwise", "reduction", "persistent_reduction"):
            patches.enter_context(patch.object(triton_heuristics, decorator, keep))
        return with_gradients(partial(flex.attend, case.pattern), case)


def compile_for_gpu(graph: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """Compile the graph of one pass for a GPU, though it was traced on the CPU."""

    def move(x: Tensor) -> Tensor:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")

    with torch._guards.detect_fake_mode(inputs):
        graphs = [module for module in graph.modules() if isinstance(module, fx.GraphModule)]
        for node in (node for part in graphs for node in part.graph.nodes):
            if "val" in node.meta:
                node.meta["val"] = tree_map_only(Tensor, move, node.meta["val"])
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
        return compile_fx.compile_fx_inner(graph, tree_map_only(Tensor, move, list(inputs)), **options)


def with_gradients(attend: Callable[..., Tensor], case: Case) -> list[Tensor]:
    """Compute attention and the gradients of q, k, v and biases for a fixed gradient of the result, zero at padding."""
    biases = case.context.biases
    for leaf in (*case[2:], *biases):
        leaf.requires_grad_()
    result = attend(*case[2:], case.context)
    torch.manual_seed(1)
    gradient = torch.randn(result.shape)
    if case.context.padding_mask is not None:
        gradient[~case.context.padding_mask] = 0
        result = result.masked_fill(~case.context.padding_mask[..., None, None], 0)
    gradients = torch.autograd.grad(result, (*case[2:], *biases), gradient.to(result.dtype))
    return [result.detach(), *gradients]


def prepare() -> None:
    """Let the compiler find Triton's target, and its code run on the CPU."""
    load_cuda_guard(Path(tempfile.mkdtemp()))
    driver.set_active(SimpleNamespace(get_current_target=lambda: TARGET))
    schedule: Any = scheduler
    schedule.has_triton = lambda: True
    library: Any = torch._C
    library._cuda_getCurrentRawStream = lambda _: 0
    helpers: Any = triton_helpers
    helpers.set_driver_to_gpu = lambda: None
    devices: Any = of_torch
    devices._validate_device = lambda *_: None  # refuses gradients on a CPU
    guards = library._dynamo.guards
    guards._empty_strided_cuda = guards._empty_strided_cpu
    config.force_disable_caches = True


def compiled(case: Case) -> dict[str, dict[str, int]]:
    """Compile both kernels of a case: bytes of shared memory per block, registers and bytes of stack per thread."""
    kernels: list[Kernel] = []
    attend(case, lambda kernel, _: kernels.append(kernel))
    forward, backward = (kernel for kernel in kernels if "num_warps" in kernel.options)
    return {"forward": resources(forward), "backward": resources(backward)}


def resources(kernel: Kernel) -> dict[str, int]:
    """Compile a kernel of attention."""
    signature, (attributes,) = kernel.options["triton_meta"]["signature"], kernel.options["triton_meta"]["configs"]
    options = {name: kernel.options[name] for name in ("num_warps", "num_stages")}
    result = triton.compile(triton.compiler.ASTSource(kernel.function, signature, {}, attributes), TARGET, options)
    cuobjdump = triton.knobs.nvidia.cuobjdump.path
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(result.asm["cubin"])
        file.flush()
        usage = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    numbers = {key: int(value) for key, value in re.findall(r"(REG|STACK):(\d+)", usage)}
    return {"shared": result.metadata.shared, "registers": numbers["REG"], "stack": numbers["STACK"]}


def interpret(kernel: Kernel, args: Sequence[Any]) -> None:
    """Run a kernel in Triton's interpreter."""
    if "num_warps" in kernel.options:
        kernel.function[args[-3:]](*args[:-3])
        return
    names = list(kernel.options["triton_meta"]["signature"])
    sizes = dict(zip(names, args, strict=False))
    blocks = {name: BLOCKS[name] for name in names if name in BLOCKS}
    grid = [triton.cdiv(sizes[f"{name[0].lower()}numel"], block) for name, block in sorted(blocks.items())]
    kernel.function[tuple(grid)](*args, **blocks)


def interpreted(case: Case) -> dict[str, dict[str, float]]:
    """Run the kernels of a case, and compare them with ``attend`` in float32: the largest difference and value."""
    found = attend(case, interpret)
    context = case.context._replace(biases=tuple(x.detach().float() for x in case.context.biases))
    in_float32 = case._replace(
        context=context, q=case.q.detach().float(), k=case.k.detach().float(), v=case.v.detach().float()
    )
    expected = with_gradients(case.pattern.attend, in_float32)
    names = ("result", "dq", "dk", "dv", *(f"dbias{index}" for index in range(len(context.biases))))
    return {
        name: {"difference": float((ours - theirs).abs().amax()), "largest": float(theirs.abs().amax())}
        for name, ours, theirs in zip(names, found, expected, strict=True)
    }


def main() -> None:
    prepare()
    do, dtype = (compiled, torch.bfloat16) if sys.argv[1] == "compile" else (interpreted, torch.float16)
    for name, case in cases(dtype):
        if all(word in name for word in sys.argv[2:]):
            print(json.dumps({"name": name, **do(case)}), flush=True)


if __name__ == "__main__":
    main()

"""Training steps of each pattern on devices that only claim to be there: no tensor may be made on another one.

Whole steps run on the device ``meta``. Forward passes run on a fake CUDA device too, whose kernels are those of a GPU;
that needs a PyTorch built with CUDA, or a C++ compiler. Backward passes there would need a GPU.
"""

import ctypes
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.weak import WeakTensorKeyDictionary

from trainer.model import context as batch_context
from trainer.model.build import make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import Context, Globals
from trainer.model.kernels import chunks, flex
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.loss import sum_cross_entropy
from trainer.model.patterns import Block, BlockGlobal, Full, Local, Overlap, Staggered, TGlobal, Window
from trainer.model.positions import Buckets, Learned, Rotary, Sinusoidal
from trainer.optim.optimizer import OptimizerConfig, build_optimizer

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


BATCH, SOURCE, TARGET, VOCAB = 2, 300, 7, 50
PATTERNS = [
    Full(),
    Block(64),
    Overlap(64),
    Staggered(64, 4),
    BlockGlobal(64, 4),
    Window(64),
    Local(31),
    TGlobal(31, 16),
]
KINDS = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern)


@pytest.fixture(scope="module")
def guard(request):
    load_cuda_guard(request.config.cache.mkdir("cuda_guard"))


@pytest.fixture
def fake(monkeypatch, guard):
    """A fake mode, whose tensors no cache outlives, and kernels that are not compiled."""
    monkeypatch.setattr(batch_context, "_made", WeakTensorKeyDictionary())
    monkeypatch.setattr(flex, "_compiled", lambda: flex_attention)
    flex.tiles_of.cache_clear()
    with FakeTensorMode() as mode:
        yield mode
    flex.tiles_of.cache_clear()


def config_of(pattern) -> ModelConfig:
    """Relative positions where the pattern supports them, rotary or sinusoidal ones elsewhere; pooling beside them."""
    relative, own = bool(pattern.offsets(1)), pattern.extra_tokens > 0
    positions = Buckets() if relative else Sinusoidal() if own else Rotary()
    encoder = EncoderConfig(
        layers=2, positions=positions, attention=pattern, pooling=None if own else Pooling(layers=1)
    )
    return ModelConfig(
        width=32, heads=HeadsConfig(count=2), feed_forward=FeedForwardConfig(width=16), encoder=encoder,
        decoder=DecoderConfig(layers=1, positions=Buckets() if relative else Learned(16), global_cross_attention=own),
    )  # fmt: skip


def on_cuda(config: ModelConfig, kind: torch.dtype):
    """A model whose weights want no gradients."""
    with torch.device("meta"):
        model = make_model(config, VOCAB).train()
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            setattr(module, name, torch.nn.Parameter(torch.empty(weight.shape, dtype=kind, device="cuda"), False))
    return model


def contexts(pattern, device: str, documents: bool):
    """Whole rows and padded ones, with documents if so wanted, and global positions where the pattern takes them."""
    mask = torch.ones(BATCH, SOURCE, dtype=torch.bool, device=device)
    segments = torch.zeros(BATCH, SOURCE, dtype=torch.int32, device=device) if documents else None
    at = torch.zeros(BATCH, 3, dtype=torch.int64, device=device)
    chosen = Globals(at, at == 0, mask) if pattern.takes_global_positions else None
    return Context(), Context(mask, segments, 2 if documents else 1, chosen)


def loss_of(model, context: Context, device: str):
    ids, labels = (torch.zeros(BATCH, size, dtype=torch.int64, device=device) for size in (SOURCE, TARGET))
    hidden = model.decode(labels, model.encode_in(ids, context)).flatten(0, 1)
    return sum_cross_entropy(hidden, labels.flatten(), model.output_weight).minimised


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@KINDS
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_every_kernel_stays_on_the_device(pattern, kind, fake):
    config = config_of(pattern)
    if kind == torch.bfloat16:
        config = replace(config, encoder=replace(config.encoder, pooling=None))
    model = on_cuda(config, kind)
    whole, padded = contexts(pattern, "cuda", documents=True)
    assert loss_of(model, whole, "cuda").device.type == "cuda"
    if kind == torch.float32 or pattern.uses_flex:  # the shapes of other kernels' plans depend on data
        states, _ = model.encoder(model.tokens(torch.zeros(BATCH, SOURCE, dtype=torch.int64, device="cuda")), padded)
        assert states.device.type == "cuda"


@KINDS
def test_a_training_step_stays_on_the_device(pattern):
    with torch.device("meta"):
        model = make_model(config_of(pattern), VOCAB).train()
    for context in contexts(pattern, "meta", documents=True):
        loss_of(model, context, "meta").backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is None} == set()
    assert all(parameter.grad.is_meta for parameter in model.parameters())
    build_optimizer(model, OptimizerConfig(name="adafactor")).step()  # fused Adam takes no such device


@pytest.mark.parametrize("documents", [False, True])
def test_the_kernel_of_a_band_stays_on_the_device(documents, fake):
    q, k, near, far = (torch.zeros(size, device="cuda") for size in [(2, 70, 2, 8), (2, 74, 2, 8), (2, 15), (2, 7)])
    of_keys = torch.zeros(2, 74, dtype=torch.int64, device="cuda") if documents else None
    of_queries = None if of_keys is None else of_keys[:, :70]
    inputs = chunks.Inputs(q, k, k, near, far, of_queries, of_keys, None, 16, 1.0, 0.0)
    assert {chunk.weights.device.type for chunk in inputs.chunks()} == {"cuda"}


@pytest.fixture
def misplaced(monkeypatch):
    """Makes a pattern's indices on the CPU, whatever device is wanted."""
    arange = torch.arange
    monkeypatch.setattr(torch, "arange", lambda *given, device=None, **named: arange(*given, **named))


def test_a_tensor_of_another_device_is_found(misplaced, fake):
    model = on_cuda(config_of(Window(64)), torch.float32)
    with pytest.raises(RuntimeError, match="device"):
        loss_of(model, contexts(Window(64), "cuda", documents=False)[1], "cuda")


def test_a_tensor_of_another_device_is_found_in_a_step(misplaced):
    with torch.device("meta"):
        model = make_model(config_of(Window(64)), VOCAB)
    with pytest.raises(RuntimeError, match="device"):
        loss_of(model, contexts(Window(64), "meta", documents=False)[1], "meta")

"""Loads exported BART-LS folders with transformers alone, as a process without farspan.

Arguments: folders with a model in ``out`` and the tensors of farspan's results in ``results``; each model is saved
to ``saved`` beside them.
"""

import sys
from functools import partial
from pathlib import Path

sys.modules |= dict.fromkeys(("corpora", "objectives", "trainer", "pipelines", "farspan"))  # importing them fails

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer  # noqa: E402


def check(folder, results, out) -> None:
    assert AutoTokenizer.from_pretrained(folder)("w1 w2")["input_ids"]
    expected = load_file(results)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
    worst = 0.0
    for implementation in ("sdpa", "eager"):
        model.set_attn_implementation(implementation)
        for name in sorted({name.partition(".")[0] for name in expected}):
            ids, mask, target, logits = (expected[f"{name}.{part}"] for part in ("ids", "mask", "target", "logits"))
            with torch.no_grad():
                found = model(input_ids=ids, attention_mask=mask, decoder_input_ids=target).logits
            worst = max(worst, (found - logits).abs().max().item())
            assert worst < 1e-5, (implementation, name, worst)

            if name in ("less than a block", "a block"):
                continue  # generation takes the most time
            texts = partial(model.generate, ids, attention_mask=mask, max_new_tokens=6, min_new_tokens=6)
            for beams in (1, 4):
                plain = texts(num_beams=beams, use_cache=False)
                assert torch.equal(plain, texts(num_beams=beams)), (name, beams)
            assert torch.equal(texts(), texts(cache_implementation="static")), name

    ids, mask, labels = (expected[f"several blocks.{part}"] for part in ("ids", "mask", "target"))
    assert len(model.model.encoder(ids, output_hidden_states=True).hidden_states) == len(model.model.encoder.layers) + 1
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.train().zero_grad()
        model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        gradients.append({name: x.grad.clone() for name, x in model.named_parameters()})
        assert all(gradient.isfinite().all() for gradient in gradients[-1].values())
    assert all(torch.allclose(x, gradients[1][name], atol=1e-6) for name, x in gradients[0].items())

    model.save_pretrained(out)
    assert (Path(out) / "modeling_bart_ls.py").read_bytes() == (Path(folder) / "modeling_bart_ls.py").read_bytes()
    again = AutoModelForSeq2SeqLM.from_pretrained(out, trust_remote_code=True)
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in model.state_dict().items())
    print(f"worst {worst:.1e}")


for place in map(Path, sys.argv[1:]):
    check(place / "out", place / "results", place / "saved")

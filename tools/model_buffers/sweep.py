# SPDX-License-Identifier: Apache-2.0
"""posenc.hf.check beside what models do: every class that AutoModel knows is built small and run, each of its buffers is set to zero,
to NaN and to bfloat16's numbers, and the change of the output is compared with what check says.

python tools/model_buffers/sweep.py [TYPE ...] [--json FILE]
Prints a line for each class, and for each buffer where the two disagree: `silent` (the output changed, check says nothing) or
`alarm` (check reports an error, the output is the same to the bit for all three). A class that cannot be built here, or not run
with the inputs that this script makes, is counted with its reason.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import signal
import time
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import transformers  # noqa: E402
from posenc.hf import _check, _fresh, check  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES  # noqa: E402

transformers.logging.set_verbosity(transformers.logging.CRITICAL)
SMALL = dict(
    vocab_size=128, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    d_model=64, d_ff=64, d_kv=16, n_embd=64, n_head=4, ffn_dim=64, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4,
    decoder_attention_heads=4, num_experts=4, num_local_experts=4, n_routed_experts=4, num_heads=4, n_heads=4, rotary_dim=8,
    max_position_embeddings=64, n_positions=64, embed_dim=64, shared_expert_intermediate_size=32)
LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "depth", "num_encoder_layers",
          "num_decoder_layers")
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
# Forms of a class beside its default, and sizes that it needs.
ROPE = dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])
FORMS = {
    "esm": [dict(vocab_size=128, pad_token_id=1, mask_token_id=2, position_embedding_type=p) for p in ("rotary", "absolute")],
    "falcon": [{}, dict(alibi=True)],
    "wav2vec2-conformer": [dict(position_embeddings_type=p) for p in ("rotary", "relative")],
    "speecht5": [{}], "granitemoehybrid": [{}, dict(position_embedding_type="rope", layer_types=["attention"] * 2)],
    "ministral": [dict(head_dim=16)], "nemotron": [dict(head_dim=16)], "hunyuan_v1_dense": [dict(head_dim=16)], "hunyuan_v1_moe": [dict(head_dim=16)],
    "dots1": [dict(n_routed_experts=4)], "autoformer": [dict(prediction_length=4)], "informer": [dict(prediction_length=4)],
    "time_series_transformer": [dict(prediction_length=4)],
    "llama": [{}, dict(rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=1e4)),
              dict(rope_parameters=dict(rope_type="yarn", factor=2.0, rope_theta=1e4, original_max_position_embeddings=32))],
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "glm4v_text"), [dict(rope_parameters=ROPE)]),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v"), [dict(text_config=dict(rope_parameters=ROPE))]),
}


class Late(BaseException):
    """A class takes too long. No handler of a library stops it."""


def shrunk(config: object, small: bool) -> None:
    """Fewer layers, and smaller ones."""
    values = []
    for name in vars(config):
        with contextlib.suppress(Exception):
            values.append((name, getattr(config, name)))
    for _, value in values:
        if isinstance(value, transformers.PretrainedConfig):
            shrunk(value, small)
    wanted: dict[str, object] = {n: 2 for n in LAYERS}
    if small:
        wanted |= SMALL | TOKENS
    for name, value in values:
        if name in TOKENS and small and value is not None or name in wanted and isinstance(value, int) and value > int(wanted[name]):  # type: ignore[call-overload]
            with contextlib.suppress(Exception):  # it may differ from layer to layer
                setattr(config, name, wanted[name])
        if name in ("layer_types", "mlp_layer_types", "layers_block_type") and isinstance(value, list):
            setattr(config, name, value[:2])


def inputs(model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """What forward needs, by the name of the main input."""
    g = torch.Generator().manual_seed(0)
    config = model.config
    name = model.main_input_name
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 32)
        size = size if isinstance(size, int) else size[0]
        given = {name: torch.randn(1, getattr(vision, "num_channels", 3), size, size, generator=g)}
    elif name == "input_values":
        given = {name: torch.randn(1, 4000, generator=g)}
    elif name == "input_features":
        given = {name: torch.randn(1, 64, getattr(config, "num_mel_bins", getattr(config, "feature_projection_input_dim", 80)), generator=g)}
    else:
        given = {name: torch.randint(3, 100, (1, 12), generator=g)}
    if getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = torch.randint(3, 100, (1, 12), generator=g)
    return given


def result(model: torch.nn.Module, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Every floating tensor of the output."""
    torch.manual_seed(0)
    with torch.no_grad():
        out = model(**given)
    found: list[torch.Tensor] = []

    def walk(x: object) -> None:
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            found.append(x)
        elif isinstance(x, dict):
            list(map(walk, x.values()))
        elif isinstance(x, (list, tuple)):
            list(map(walk, x))

    walk(dict(out) if isinstance(out, dict) else out)
    return found


def built(kind: str, name: str, form: dict[str, object]) -> torch.nn.Module:
    """The smallest of it that can be built."""
    problem = ""
    for small in (True, False):
        config = transformers.CONFIG_MAPPING[kind](**form)
        try:
            shrunk(config, small)
            with torch.device("meta"):
                count = sum(p.numel() for p in getattr(transformers, name)(config).parameters())
            if count > 4e8:
                problem = f"{count:.1e} parameters"
                continue
            torch.manual_seed(0)
            return getattr(transformers, name)(config).eval()  # type: ignore[no-any-return]
        except Late:
            raise
        except Exception as e:
            problem = f"{type(e).__name__}: {str(e).strip()[:80]}"
    raise RuntimeError(problem)


def wrong(kind: str, x: torch.Tensor) -> torch.Tensor | None:
    """The numbers that a mistake leaves; None: it has none for these elements."""
    if kind == "zero":
        return torch.zeros_like(x)
    if not x.is_floating_point():
        return None
    return torch.full_like(x, float("nan")) if kind == "nan" else x.bfloat16().to(x.dtype)


def compared(model: torch.nn.Module) -> dict[str, str]:
    """silent, alarm, agrees or skipped, by class of the module and name of the buffer."""
    expected = _fresh.expected(model)
    _fresh.expected = lambda root: expected  # type: ignore[assignment]
    given, verdict = inputs(model), {}
    fresh = check(model)
    if fresh:
        return {f"fresh: {f.where} {f.code} {f.message}": "alarm" for f in fresh[:3]}
    called: set[torch.nn.Module] = set()
    hooks = [m.register_forward_hook(lambda m, *_: called.add(m)) for m in model.modules()]
    try:
        before = result(model, given)
    except Late:
        raise
    except Exception as e:
        before, verdict["not run"] = None, f"{type(e).__name__}: {str(e).strip()[:60]}"  # type: ignore[assignment]
    for hook in hooks:
        hook.remove()
    fresh = [f for f in check(model) if f.severity == "error"]
    if fresh:
        verdict[f"after a call: {fresh[0].where} {fresh[0].code}"] = "alarm"
    groups: dict[tuple[str, str], list[tuple[torch.nn.Module, str]]] = collections.defaultdict(list)
    for path, module in model.named_modules():
        for name, _ in _fresh.tensors(module):
            groups[type(module).__name__, name].append((module, f"{path}.{name}".lstrip(".")))
    for (cls, name), places in groups.items():
        if name in ("running_mean", "running_var", "num_batches_tracked"):
            continue
        kept = [m._buffers.get(name, m.__dict__.get(name)).clone() for m, _ in places]
        changed, said = set(), set()
        for kind in ("zero", "nan", "bf16"):
            for (module, _), x in zip(places, kept):
                new = wrong(kind, x)
                if new is not None:
                    with torch.no_grad():
                        module._buffers.get(name, module.__dict__.get(name)).copy_(new)
            if any(f.severity == "error" and f.where in {p for _, p in places} for f in check(model)):
                said.add(kind)
            if before is not None:
                try:
                    after = result(model, given)
                    if len(after) != len(before) or any(a.shape != b.shape or not torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(after, before)):
                        changed.add(kind)
                except Late:
                    raise
                except Exception:
                    changed.add(kind)
            for (module, _), x in zip(places, kept):
                with torch.no_grad():
                    module._buffers.get(name, module.__dict__.get(name)).copy_(x)
        key = f"{cls}.{name}"
        if before is None:
            verdict[key] = "not run, says " + (",".join(sorted(said)) or "nothing")
        elif not changed and not {m for m, _ in places} & called:
            verdict[key] = "not called, says " + (",".join(sorted(said)) or "nothing")
        elif changed - said:
            verdict[key] = "silent: " + ",".join(sorted(changed - said))
        elif said and not changed:
            verdict[key] = "alarm: " + ",".join(sorted(said))
        else:
            verdict[key] = "agrees"
    return verdict


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("types", nargs="*")
    words.add_argument("--json")
    words.add_argument("--seconds", type=int, default=90, help="for one class")
    given = words.parse_args()
    torch.set_num_threads(1)

    def late(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    all_found: dict[str, dict[str, str]] = {}
    original = _fresh.expected
    for kind, names in MODEL_MAPPING_NAMES.items():
        for name, form in itertools.product([names] if isinstance(names, str) else names, FORMS.get(kind, [{}])):
            if given.types and kind not in given.types:
                continue
            _fresh.expected, start = original, time.time()
            signal.alarm(given.seconds)
            try:
                found = compared(built(kind, name, form))
            except Late:
                found = {"not built": f"more than {given.seconds} s"}
            except Exception as e:
                found = {"not built": str(e)[:100] or type(e).__name__}
            finally:
                signal.alarm(0)
            label = " ".join([kind, name, *(f"{n}={v}" for n, v in form.items())])
            all_found[label] = found
            bad = {n: v for n, v in found.items() if v != "agrees"}
            print(f"{label}: {len(found)} buffers, {time.time() - start:.1f} s" + "".join(f"\n    {n}: {v}" for n, v in bad.items()), flush=True)
    if given.json:
        with open(given.json, "w") as f:
            json.dump(all_found, f, indent=1)
    count = collections.Counter(v.split(":")[0] for one in all_found.values() for v in one.values())
    print(len(all_found), "classes;", ", ".join(f"{n} {v}" for v, n in count.most_common()))


if __name__ == "__main__":
    main()

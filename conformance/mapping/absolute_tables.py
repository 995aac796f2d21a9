# SPDX-License-Identifier: Apache-2.0
"""absolute: tables of positions, their resizing, compositions and position ids."""

from mapping.words import all_axes, check, words


def checks(case, arrays):
    rule = RULES.get(case["scheme"])
    return rule(case, case["params"], arrays) if rule else None


def size(value):
    return "x".join(str(n) for n in value) if isinstance(value, list) else str(value)


def extended(old, to, how, prefix=0, axes=None, table="table", out="out", grad=None):
    ins, outs = {"table": table}, {"table": out}
    if grad:
        ins["grad_out"], outs["grad_table"] = grad
    scheme = words("learned", grid=size(old), prefix=prefix or None)
    return [check("extend", scheme=scheme, to=size(to), how=how, axes=axes,
                  **{"in": ins, "out": outs})]


def yes(flag):
    return True if flag else None


def interpolate(case, p, arrays):
    name = case["name"]
    if name.startswith("interp1d_") or name.startswith("interp2d_"):
        return torch_interpolate(p)
    if name.startswith("interp_hf_packed_"):
        return packed(p)
    if name.startswith("interp_timm_"):
        return timm(p, arrays)
    if name.startswith("interp_dinov2_"):
        how = words(p["mode"], offset=p["interpolate_offset"] or None,
                    antialias=yes(p["interpolate_antialias"]))
        return extended(p["old"], p["new"], how, prefix=1, table="pos_embed")
    if name.startswith("interp_hf436_"):
        return extended(p["old"], p["new"], words("bicubic", offset=p["offset"]), prefix=1,
                        table="position_embeddings",
                        grad=("grad_out", "grad_position_embeddings"))
    return vit(p, arrays)


def torch_interpolate(p):
    one = p["mode"] == "linear"
    scale = p.get("scale_factor")
    if scale is not None and p.get("recompute_scale_factor"):
        scale = None
    scales = [scale, None] if one or scale is None else scale
    how = words(p["mode"], align_corners=yes(p["align_corners"]),
                antialias=yes(p.get("antialias")), scale_y=scales[0], scale_x=scales[1])
    letters = "bdt" if one else "bdtt"
    return extended(p["old"], p["new"], how, axes=all_axes(letters, "x", "out", "grad_out", "grad_x"),
                    table="x", grad=("grad_out", "grad_x"))


def packed(p):
    # The peer's own indices and weights rest on sampling points in float32; its rows are compared.
    how = words(p["mode"], align_corners=yes(p["align_corners"]))
    scheme = words("learned", grid=size([p["side"], p["side"]]))
    return [check("extend", scheme=scheme, how=how, merge=p["spatial_merge_size"], **{
        "in": {"table": "table", "grids": "grid_thw"},
        "out": {"rows": "rows"}})]


def timm(p, arrays):
    old = p.get("old_size") or arrays.shape("posemb")[1:3]
    how = words(p["interpolation"], antialias=yes(p["antialias"]))
    return extended(old, p["new_size"], how, prefix=p.get("num_prefix_tokens", 0), table="posemb")


def vit(p, arrays):
    side = p["image_size"] // p["patch_size"]
    new = [p["height"] // p["patch_size"], p["width"] // p["patch_size"]]
    table = "position_embedding" if arrays.has("position_embedding") else "position_embeddings"
    grad = ("grad_out", "grad_" + table) if arrays.has("grad_out") else None
    return extended([side, side], new, "bicubic", prefix=1, table=table, grad=grad)


RULES = {"interpolate": interpolate}

# SPDX-License-Identifier: Apache-2.0
"""positions: a rule per family of models."""

from mapping.words import check, words


def rule(p):
    family = p["family"]
    if family == "hunyuan_vl":
        return words("xd_rope", axes=p["axes"])
    if family == "qwen2_5_omni":
        return words("omni", positions_per_second=p["position_id_per_seconds"], interleave="by_chunk",
                     seconds_per_chunk=p["seconds_per_chunk"], whole_positions=True, shared_marks=True, padded=1)
    if family == "qwen3_omni":
        return words("omni", positions_per_second=p["position_id_per_seconds"])
    if family == "qwen2_5_vl":
        return words("mrope", tokens_per_second=p["tokens_per_second"], float32_times=True)
    return words("mrope", frames_apart=True if family == "qwen3_vl" else None)


def checks(case, arrays):
    given = {"token_types": "token_types", "mask": "mask"}
    for ours, theirs in (("image_grid", "image_grid_thw"), ("video_grid", "video_grid_thw"), ("seconds", "seconds")):
        if arrays.has(theirs):
            given[ours] = theirs
    return [check("positions", rule=rule(case["params"]), axes={"position_ids": "abt"},
                  **{"in": given, "out": {"positions": "position_ids", "delta": "deltas"}})]

# SPDX-License-Identifier: Apache-2.0
"""absolute: what the operations of today cover; the other cases have no field yet (None)."""

from mapping import absolute_phase, absolute_tables
from mapping.words import check, words


def checks(case, arrays):
    tables = absolute_tables.checks(case, arrays)
    if tables is not None:
        return tables
    phase = absolute_phase.checks(case, arrays)
    if phase is not None:
        return phase
    name, p = case["name"], case["params"]
    if name == "ids_fairseq":
        return [check("positions", rule=words("fairseq", padding_idx=i), **{
            "in": {"tokens": "input_ids"}, "out": {"positions": "pad%d" % i}})
            for i in p["padding_idx"]]
    if name == "ids_hf436_gpt2_generation":
        return [check("positions", rule="from_mask padded=1", **{
            "in": {"mask": "attention_mask"}, "out": {"positions": "position_ids"}})]
    return None

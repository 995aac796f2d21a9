# SPDX-License-Identifier: Apache-2.0
"""absolute: the two halves, and what neither can say."""

from mapping import absolute_phase, absolute_tables


def checks(case, arrays):
    tables = absolute_tables.checks(case, arrays)
    found = tables if tables is not None else absolute_phase.checks(case, arrays)
    return found if found is not None else NOT_EXPRESSIBLE.get(case["name"])


NOT_EXPRESSIBLE = {
    "crossmodal_hf_visualbert":
        "words and regions stand behind each other in one output and each goes through an embedding "
        "of its own; the operations compare one embedding at a time",
}

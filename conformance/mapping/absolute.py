# SPDX-License-Identifier: Apache-2.0
"""absolute: tables, sinusoids of one axis, everything else with a phase; and what none can say."""

from mapping import absolute_phase, absolute_sinusoids, absolute_tables


def checks(case, arrays):
    for rules in (absolute_tables, absolute_phase, absolute_sinusoids):
        found = rules.checks(case, arrays)
        if found is not None:
            return found
    return NOT_EXPRESSIBLE.get(case["name"])


NOT_EXPRESSIBLE = {
    "crossmodal_hf_visualbert":
        "words and regions stand behind each other in one output and each goes through an embedding "
        "of its own; the operations compare one embedding at a time",
}

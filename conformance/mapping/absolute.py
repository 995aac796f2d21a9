# SPDX-License-Identifier: Apache-2.0
"""absolute: tables, sinusoids of one axis, everything else with a phase."""

from mapping import absolute_phase, absolute_sinusoids, absolute_tables


def checks(case, arrays):
    for rules in (absolute_tables, absolute_phase, absolute_sinusoids):
        found = rules.checks(case, arrays)
        if found is not None:
            return found
    return None

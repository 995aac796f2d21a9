# SPDX-License-Identifier: Apache-2.0
"""As `copy`, the word backwards."""
from . import copy


class Task(copy.Task):
    backwards = True

# SPDX-License-Identifier: Apache-2.0
"""Runs pytest again and again, each time in a child of a process that has imported the large packages once.

Reads a list of pytest's words a line, as JSON, and answers with [exit code, output]. posenc is imported in the children alone.
"""
import json
import os
import signal
import sys
import tempfile

import pytest

SECONDS = 600  # a child that takes longer is ended

try:
    import torch  # noqa: F401
    import transformers  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401
except ModuleNotFoundError:  # the part with numpy alone
    pass


def child(words, output):
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    signal.alarm(SECONDS)
    code = pytest.main(words)
    sys.stdout.flush()
    os._exit(int(code))


for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line), output)
        status = os.waitpid(pid, 0)[1]
        output.seek(0)
        print(json.dumps([os.waitstatus_to_exitcode(status), output.read()]), flush=True)

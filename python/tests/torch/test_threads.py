# SPDX-License-Identifier: Apache-2.0
"""Threads, fork and memory beside PyTorch."""
import os
import subprocess
import sys

import posenc
import pytest
import torch
from posenc import _posenc
from posenc import torch as pt

ROPE = posenc.Rope(head_dim=64, pairing="half_split")


def run(code, **more):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, **more).stdout


def test_work_runs_on_torchs_team():
    assert _posenc.torch_team()
    code = """
import os, torch, numpy, posenc
from posenc import torch as pt
torch.set_num_threads(2)
x = torch.randn(400, 400); x @ x
started = len(os.listdir("/proc/self/task"))
q, p = torch.zeros(20000, 8, 64), torch.arange(20000)
pt.rotate_("rope head_dim=64 pairing=half_split", q, positions=p)
posenc.rotate("rope head_dim=64 pairing=half_split", q.numpy(), positions=p.numpy())
pt.compose("sinusoidal width=512 layout=halves", q.flatten(1), positions=p)
assert len(os.listdir("/proc/self/task")) == max(started, 2), "threads of its own"
torch.set_num_threads(1)
"""
    run(code)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_threads(threads):
    q, p = torch.randn(5000, 8, 64), torch.arange(5000)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    want = pt.rotate(ROPE, q, positions=p)
    torch.set_num_threads(threads)
    got = pt.rotate(ROPE, q, positions=p)
    torch.set_num_threads(before)
    assert torch.equal(got, want)


def test_one_thread_is_one_thread():
    """With torch.set_num_threads(1) a large call takes no more of the processor than it takes time."""
    code = """
import os, time, torch
from posenc import torch as pt
torch.set_num_threads(1)
q, p = torch.zeros(60000, 8, 64), torch.arange(60000)
for _ in range(5): pt.rotate_("rope head_dim=64 pairing=half_split", q, positions=p)
print(len(os.listdir("/proc/self/task")))
"""
    alone = int(run("import os, torch; torch.set_num_threads(1); torch.zeros(10).sum(); print(len(os.listdir('/proc/self/task')))"))
    assert int(run(code)) <= alone


def test_fork_after_the_team_started():
    q, p = torch.randn(20000, 8, 64), torch.arange(20000)
    torch.set_num_threads(2)
    want = pt.rotate(ROPE, q, positions=p)
    child = os.fork()
    if child == 0:
        ok = (pt.rotate(ROPE, q, positions=p).numpy() == want.numpy()).all()  # torch itself would wait for its threads
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return pt.rotate(ROPE, torch.ones(4000, 2, 64), positions=torch.arange(4000) + i)


def test_workers_of_a_loader():
    pt.rotate(ROPE, torch.ones(20000, 8, 64), positions=torch.arange(20000))
    got = list(torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2, timeout=60))
    assert len(got) == 4 and all(torch.equal(x, Rows()[i]) for b, pair in enumerate(got) for x, i in zip(pair, (2 * b, 2 * b + 1)))


def memory():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_calls_leave_nothing_behind():
    q, p = torch.randn(2, 1, 64), torch.arange(2)
    k, cos, sin = q.clone().requires_grad_(), torch.randn(2, 32), torch.randn(2, 32)
    x, table = torch.randn(2, 8), torch.randn(9, 8, requires_grad=True)

    def calls():
        pt.rotate_(ROPE, q, positions=p)
        pt.rotate(ROPE, q, k, positions=p)[1].sum().backward()
        pt.rotate_rows(q, k, cos, sin, pairing="half_split", columns="half")
        try:
            pt.rotate(ROPE, q, positions=p[:1])
        except ValueError:
            pass
        pt.compose("learned width=8 rows=9", x, positions=p, parameters={"table": table}).sum().backward()
        k.grad = table.grad = None

    torch.set_num_threads(1)
    for _ in range(200):
        calls()
    before = memory()
    for _ in range(2000):
        calls()
    assert memory() - before < 2 << 20
    assert run("import posenc.torch") == ""

# SPDX-License-Identifier: Apache-2.0
"""Threads, fork, memory, the interpreter's lock."""
import os
import subprocess
import sys
import threading
import time

import numpy
import posenc
import pytest

PLAN = posenc.RotaryPlan("rope head_dim=64 pairing=half_split")


def run(code, *arguments, **more):
    return subprocess.run([sys.executable, *arguments, "-c", code], capture_output=True, text=True, check=True, **more)


def test_import_is_quick_and_starts_nothing():
    code = """
import os, resource, sys
def used(): r = resource.getrusage(resource.RUSAGE_SELF); return r.ru_utime + r.ru_stime
before = used()
import posenc
spent = used() - before
assert not {"numpy", "torch", "typing", "tempfile", "ml_dtypes"} & set(sys.modules), sys.modules
assert len(os.listdir("/proc/self/task")) == 1
print(spent)
"""
    assert min(float(run(code, "-S" if sys.prefix == sys.base_prefix else "-s").stdout) for _ in range(5)) < 0.05


def test_threads_share_a_plan(random):
    q = random.normal(size=(64, 4, 64)).astype(numpy.float32)
    want = PLAN.rotate(q, positions=range(64))
    wrong = []

    def work():
        for _ in range(200):
            if (PLAN.rotate(q, positions=range(64)) != want).any():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_first_arrays_of_many_threads():
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
import posenc
threads = [threading.Thread(target=posenc.arange, args=(0, 5)) for _ in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    for _ in range(3):
        run(code, timeout=60)


Q = numpy.random.default_rng(0).normal(size=(3, 1200, 8, 64))
BIG = numpy.zeros((60000, 8, 64), numpy.float32)
TABLE = posenc.RotaryTable(PLAN, len(BIG))
MOVES = posenc.RerotationPlan(PLAN, PLAN)
WORDS = numpy.random.default_rng(0).normal(size=(100, 512))
ATTENDED = posenc.attend("alibi", *Q[:, :600], causal=True)
CALLS = {
    "rotate": lambda: PLAN.rotate_(BIG, positions=range(len(BIG))),
    "attend": lambda: posenc.attend("alibi", *Q, causal=True),
    "backward": lambda: ATTENDED.backward(Q[0, :600]),
    "scores": lambda: ATTENDED.scores(["scores", "probabilities"]),
    "cos_sin": lambda: posenc.cos_sin("rope head_dim=128 pairing=half_split", numpy.arange(300000)),
    "embed": lambda: posenc.embed([posenc.EmbedPart(WORDS, numpy.zeros(60000, int))], norm=posenc.EmbedNorm()),
    "input": lambda: posenc.InputPlan("sinusoidal width=512").apply(None, numpy.arange(60000)),
    "pope": lambda: posenc.PopePlan("pope head_dim=64").apply(BIG[:20000], numpy.arange(20000)),
    "rerotate": lambda: posenc.rerotate_(BIG, PLAN, PLAN, old_positions=range(len(BIG)), new_positions=range(1, len(BIG) + 1)),
    "move": lambda: MOVES.move(BIG, old_positions=range(len(BIG)), new_positions=range(1, len(BIG) + 1)),
    "rotate_table": lambda: PLAN.rotate_table(BIG, table=TABLE, positions=range(len(BIG)), out=BIG),
    "new table": lambda: posenc.RotaryTable(PLAN, 100000),
    "phase_gradients": lambda: PLAN.phase_gradients(BIG[:4000], d_q=BIG[:4000], positions=range(4000)),
    "table": lambda: posenc.table("rope head_dim=256 pairing=half_split", positions="0:200000", what="cos_sin", dtype="f32"),
}


@pytest.mark.parametrize("name", CALLS)
def test_others_go_on_while_a_call_works(name):
    """A thread that wakes every millisecond does so while the call runs, unless the call keeps the lock."""
    posenc.set_num_threads(1)
    wakes, stop = [], threading.Event()

    def wake():
        while not stop.is_set():
            time.sleep(0.001)
            wakes.append(time.perf_counter())

    thread = threading.Thread(target=wake)
    thread.start()
    seen = 0
    for _ in range(40):
        begin = time.perf_counter()
        CALLS[name]()
        end = time.perf_counter()
        third = (end - begin) / 3
        seen += sum(begin + third < t < end - third for t in wakes)
        if seen >= 3:
            break
    stop.set()
    thread.join()
    posenc.set_num_threads(0)
    assert seen >= 3


def test_fork_after_the_pool_started():
    q = numpy.ones((20000, 8, 64), numpy.float32)
    want = PLAN.rotate(q, positions=range(20000))
    child = os.fork()
    if child == 0:
        os._exit(0 if (PLAN.rotate(q, positions=range(20000)) == want).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def memory():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_hundred_thousand_calls_keep_the_memory():
    q, positions = numpy.ones((4, 1, 64), numpy.float32), numpy.arange(4)
    bad = numpy.ones((4, 1, 63), numpy.float32)
    encoding = posenc.Rope(head_dim=64, pairing="half_split")

    def work(n):
        for _ in range(n):
            PLAN.rotate_(q, positions=positions)
            PLAN.rotate(q, positions=positions)
            posenc.rotate(encoding, q, positions=positions)
        for _ in range(n // 20):
            table = posenc.RotaryTable(encoding, 8)
            PLAN.rotate_table(q, table=table, positions=positions, out=q)
            assert table.rows()[0, 0] == 1
            posenc.rerotate_(q, PLAN, PLAN, old_positions=positions, new_positions=positions + 1)
            MOVES.move_pages(q[None], [0], old_positions=positions, new_positions=positions + 1, order="bthd")
            PLAN.phase_gradients(q, d_q=q, positions=positions)
            posenc.parse("rope head_dim=64 pairing=half_split + linear factor=2").scheme.head_dim
            posenc.attend("alibi", q, q, q).backward(q)
            with pytest.raises(ValueError):
                PLAN.rotate(bad, positions=positions)

    work(2000)
    counts, before = (sys.getrefcount(q), sys.getrefcount(positions)), memory()
    work(33000)
    assert (sys.getrefcount(q), sys.getrefcount(positions)) == counts
    assert memory() - before < 4 << 20


def test_arrays_of_a_call_live_as_long_as_it():
    a = posenc.attend("alibi", *numpy.ones((3, 4, 2, 8)))
    numpy.ones(10000)
    assert numpy.isfinite(a.backward(numpy.ones((4, 2, 8)))["q"]).all()


def test_the_end_is_silent():
    code = """
import numpy, posenc
q = numpy.ones((20000, 8, 64), numpy.float32)
posenc.rotate("rope head_dim=64 pairing=half_split", q, positions=range(20000))
kept = posenc.attend("alibi", q[:8], q[:8], q[:8])
"""
    done = run(code)
    assert done.stdout == "" and done.stderr == ""

# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, as a signal from a timer, ends a long call soon; the next call runs as ever."""
import signal
import time

import numpy
import posenc
import pytest

Q = numpy.random.default_rng(0).normal(size=(12000, 2, 64))


@pytest.fixture(autouse=True)
def one_thread():
    """So that a call is long on any machine."""
    posenc.set_num_threads(1)
    yield
    posenc.set_num_threads(0)


class Stop(BaseException):
    pass


def interrupted(call):
    """Seconds between the signal and the exception."""
    rung = []

    def ring(*_):
        rung.append(time.perf_counter())
        raise Stop

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.15)
    try:
        with pytest.raises(Stop):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return time.perf_counter() - rung[0]


def computed(kind, *arguments):
    """A result that was not computed: its backward runs without a forward pass before."""
    return kind(*arguments, {"done": True, "out": numpy.zeros_like(Q), "log_sum_exp": numpy.zeros((1, 2, len(Q)))})


W = Q / numpy.linalg.norm(Q, axis=-1, keepdims=True)
BETA = numpy.full((len(Q), 2, 1), 0.5)
CALLS = {
    "forward": lambda: posenc.attend("alibi", Q, Q, Q),
    "backward": lambda: computed(posenc.Attention, "alibi", Q, Q, Q).backward(Q),
    "selective": lambda: posenc.attend_selective(Q, Q, Q, causal=True),
    "path": lambda: posenc.attend_path(Q, Q, Q, W, BETA),
    "path backward": lambda: computed(posenc.PathAttention, {"q": Q, "k": Q, "v": Q, "w": W, "beta": BETA}).backward(Q),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_long_call_ends_within_half_a_second(name):
    assert interrupted(CALLS[name]) < 0.5
    small = posenc.attend(None, Q[:4], Q[:4], Q[:4])
    assert numpy.isfinite(small.out).all()


def test_a_keyboard_interrupt_is_one():
    def ring(*_):
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, ring)
    # Programs that a shell starts in the background ignore SIGINT.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.15)
    try:
        with pytest.raises(KeyboardInterrupt):
            posenc.attend("alibi", Q, Q, Q)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, interrupt)

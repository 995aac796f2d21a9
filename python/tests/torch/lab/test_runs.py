# SPDX-License-Identifier: Apache-2.0
"""The queue: what is refused, what is kept, how it goes on after a kill, the same bits for any number of workers."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

SMALL = ("--width", 16, "--heads", 2, "--layers", 1, "--train", 8, "--test", 16, "--batch", 4)


def rows(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("words, message", [
    (("lm", "--scheme", "alibbi"), "alibi"), (("lmm",), "the word must be"), (("lm", "--train", 64, "--test", 32), "--test must be --train or longer"),
    (("lm", "--seeds", 0), "--seeds must be 1 or more"), (("lm", "--workers", 0), "--workers"), (("lm", "--scheme", "swin"), "swin needs the grid"),
    (("lm", "--text", "none"), "must be a file that can be read"), (("lm", "--text", "one.txt"), "--held-out FILE"),
    (("lm", "--text", "folder"), "must have"), (("lm", "--steps", 0), "--steps"), (("lm", "--heads", 3), "multiple of --heads"),
    (("lm", "--lr", 2), "--lr"), (("quick", "--scheme", "rope"), "belongs to one task"), (("quick", "--task", "copy"), "one of its tasks"),
    (("--task", "copyy"), "FILE.py:Name"), (("extension", "--scheme", "alibi"), "rotary"), (("lm", "--scheme", "rope |"), "joined by"),
    (("shift", "--text", "folder"), "--text does not belong to shift"), (("lm", "--measure", "passkey"), "--measure does not belong to lm"),
    (("report", "a", "--steps", 3), "--steps does not belong to report"), (("compare", "a", "b", "--json"), "--json does not belong to compare"),
    (("lm", "--scheme", "wrong.py:Wrong"), r"KeyError: 'none' \(.*wrong.py, line 4\)"), (("lm", "--scheme", "syntax.py:Wrong"), "SyntaxError"),
    (("shift", "--train", 2, "--test", 3), "shift needs texts of 4 tokens or more, got 2"),
    (("extension", "--measure", "passkey", "--train", 4, "--test", 8), "passkey needs texts of 10 tokens or more"),
    (("lm", "--text", "folder", "--held-out", "none"), '--held-out must be a file that can be read, got "none"'),
    (("compare", "a"), "two folders"), (("report", "a"), "does not exist"), (("lm", "somewhere"), "folders belong")])
def test_refused_before_the_first_step(lab, tmp_path, capsys, words, message):
    (tmp_path / "one.txt").write_text("a" * 1000)
    (tmp_path / "wrong.py").write_text("import torch\nclass Wrong(torch.nn.Module):\n    def bias(self, distances):\n        return {}['none']\n")
    (tmp_path / "syntax.py").write_text("class Wrong(:\n")
    (tmp_path / "folder").mkdir()
    for n in "ab":
        (tmp_path / "folder" / n).write_text("short")
    assert lab(*words, "-o", "out") == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not (tmp_path / "out" / "results.jsonl").exists()


def test_a_folder_that_cannot_be_written_is_named(lab, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert lab("shift", *SMALL, "--steps", 1, "--scheme", "rope", "-o", "file") == 2
    assert '-o must be a folder, got the file "file"' in capsys.readouterr().err
    assert lab("shift", *SMALL, "--steps", 1, "--scheme", "rope", "-o", "/proc/none") == 2
    assert "/proc/none" in capsys.readouterr().err


def test_what_is_there_is_not_run_again(lab, tmp_path, capsys):
    words = ("shift", *SMALL, "--steps", 4, "-o", "out")
    assert lab(*words, "--scheme", "rope") == 0
    first = rows(tmp_path / "out")
    assert lab(*words, "--scheme", "rope", "--scheme", "alibi", "--seeds", 2) == 0
    second = rows(tmp_path / "out")
    assert second[0] == first[0] and len(second) == 4
    assert {(r["label"], r["seed"]) for r in second} == {("rope", 0), ("rope", 1), ("alibi", 0), ("alibi", 1)}
    for r in second:
        assert r["schema"] == "posenc.lab/1" and len(r["weights_sha256"]) == 64 and r["seconds"] > 0 and r["peak_bytes"] >= 0
    capsys.readouterr()
    assert lab(*words, "--scheme", "rope", "--plan") == 0
    assert "0 of 1 runs" in capsys.readouterr().out


def test_a_line_that_was_cut_is_run_again(lab, tmp_path):
    words = ("shift", *SMALL, "--steps", 2, "--scheme", "rope", "-o", "out")
    assert lab(*words) == 0
    path = tmp_path / "out" / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert lab(*words) == 0
    assert rows(tmp_path / "out")[0]["weights_sha256"] == json.loads(whole)["weights_sha256"]


def test_results_of_another_version_are_refused(lab, tmp_path, capsys):
    words = ("shift", *SMALL, "--steps", 2, "--scheme", "rope", "-o", "out")
    assert lab(*words) == 0
    path = tmp_path / "out" / "results.jsonl"
    path.write_text(path.read_text().replace('"posenc": "', '"posenc": "0.0.'))
    assert lab(*words) == 2
    assert "results of posenc 0.0." in capsys.readouterr().err
    path.write_text(path.read_text().replace("posenc.lab/1", "posenc.lab/9"))
    assert lab(*words) == 2
    assert "posenc.lab/1" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_ends_that_run_alone(lab, tmp_path):
    (tmp_path / "own.py").write_text("""
import torch
class Fails(torch.nn.Module):
    steps = 0
    def rotate(self, q, k, positions):
        Fails.steps += 1
        return (q * float("nan") if Fails.steps > 5 else q), k
""")
    assert lab("shift", *SMALL, "--steps", 8, "--scheme", "own.py:Fails", "--scheme", "rope", "--workers", 1, "-o", "out") == 0
    found = {r["label"]: r for r in rows(tmp_path / "out")}
    assert "the loss is nan at step" in found["own.py:Fails"]["failed"] and found["own.py:Fails"]["values"] == {}
    assert "failed" not in found["rope"]
    assert lab("shift", *SMALL, "--steps", 8, "--scheme", "rope", "--check", "-o", "out") == 1


def start(folder, *words):
    return subprocess.Popen([sys.executable, "-m", "posenc.lab", *map(str, words)], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                            start_new_session=True, env={**os.environ, "POSENC_LAB_CHECKPOINT": "0.2"})


def test_the_same_hashes_after_a_kill_and_with_two_workers(tmp_path):
    words = ("lm", "--width", 16, "--heads", 2, "--layers", 1, "--train", 16, "--test", 16, "--steps", 400, "--scheme", "rope", "--scheme", "t5")
    assert start(tmp_path, *words, "--workers", 2, "-o", "whole").wait() == 0
    for _ in range(3):
        process = start(tmp_path, *words, "--workers", 1, "-o", "killed")
        for _ in range(400):
            time.sleep(0.05)
            if list(tmp_path.glob("killed/checkpoints/*.pt")) or process.poll() is not None:
                break
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert start(tmp_path, *words, "--workers", 1, "-o", "killed").wait() == 0
    hashes = [sorted((r["label"], r["weights_sha256"]) for r in rows(tmp_path / f)) for f in ("whole", "killed")]
    assert hashes[0] == hashes[1]
    assert not list(tmp_path.glob("killed/checkpoints/*"))


def test_a_full_disk_is_named(tmp_path):
    from posenc.lab.tasks import Options
    from posenc.lab.train import Run

    run = Run("shift", "rope", 0, Options(train=8, test=8, width=16, heads=2, layers=1, steps=1), tmp_path / "one.pt")
    (tmp_path / "one.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        run._write()
    assert list(tmp_path.iterdir()) == []


def test_runs_that_all_end_with_an_error_are_named(lab, tmp_path, capsys, monkeypatch):
    from posenc.lab import runs

    monkeypatch.setattr(runs.Queue, "run", lambda self: ["shift rope seed 0: OSError: No space left on device"])
    assert lab("shift", *SMALL, "--steps", 1, "--scheme", "rope", "-o", "out") == 1
    assert capsys.readouterr().err.endswith("lab: shift rope seed 0: OSError: No space left on device\n")


def test_two_programs_do_not_write_to_one_folder(lab, tmp_path, capsys):
    import fcntl

    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert lab("shift", *SMALL, "--steps", 2, "--scheme", "rope", "-o", "out") == 2
    assert "no other lab writes to" in capsys.readouterr().err


def test_no_array_of_all_pairs_is_made():
    """Not in training and not in the tests of a long text."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from posenc.lab.model import Model

    tokens, seen = 97, []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(x, torch.Tensor) and x.numel() >= tokens * tokens and list(x.shape).count(tokens) > 1:
                    seen.append((function, list(x.shape)))
            return out

    for scheme in ("nope", "rope", "alibi", "t5", "kerple kernel=log", "fire", "shaw", "cope"):
        model = Model(scheme, 9, width=16, layers=1, heads=2, rows=tokens, trained=16)
        with Watch():
            model(torch.randint(0, 9, (3, tokens))).square().sum().backward()
        assert not seen, (scheme, seen)


@pytest.mark.parametrize("scheme", ("rope", "learned", "t5", "nope"))
def test_drawn_positions_are_used_in_training_and_in_tests(scheme):
    from posenc.lab.tasks import Options
    from posenc.lab.train import Run

    options = {"train": 8, "test": 16, "width": 16, "heads": 2, "layers": 1, "steps": 1}
    counted, drawn = (Run("shift", scheme, 0, Options(**options, positions=p)) for p in ("counted", "randomized"))
    assert drawn.model.scheme.sizes.rows == 32
    x = torch.randint(0, 16, (2, 16))
    again = [drawn.model(x) for _ in range(2)]
    assert torch.equal(*again)
    assert torch.equal(drawn.model(x, torch.arange(16)), drawn.model(x)) == (scheme == "nope")
    assert drawn.loss().item() != counted.loss().item() or scheme == "nope"


def test_text_of_a_choice_of_tasks_is_that_of_those_that_read_one(lab, tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    for n in "ab":
        (tmp_path / "texts" / n).write_text("some text " * 200)
    assert lab("quick", "--text", "texts", "--steps", 2, "--plan", "--json") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert {r["task"] for r in runs} == {"lm", "shift", "direction", "extension"}

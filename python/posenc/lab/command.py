# SPDX-License-Identifier: Apache-2.0
"""The words of `./lab` and `python -m posenc.lab`."""
from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

from . import claims, report, results
from .errors import LabError

if TYPE_CHECKING:  # report and compare need no torch
    from .runs import Job

_DESCRIPTION = """Train small Transformers with position encodings on short texts, test them on longer ones, compare."""
_EXAMPLES = """examples:
  ./lab quick -o out                                              the well-known pictures in a few minutes
  ./lab lm --scheme alibi --scheme "rope | kerple kernel=log" --train 64 --test 512 --seeds 3 -o out
  ./lab lm --scheme my.py:Name --scheme t5 -o out                 an encoding of your own beside T5's
  ./lab --task my.py:Name --scheme rope --scheme alibi -o out     a task of your own
  ./lab full --plan                                               what would run, and how long
  ./lab report -o out; ./lab compare out other -o both            the report again; two folders in one
"""
_WORDS = {
    "quick": "seven schemes by length, addressing, direction, extension of RoPE: a few minutes",
    "full": "fourteen schemes and all tasks, several seeds: up to an hour",
    "lm": "language model of characters: loss by length", "shift": "repeat the token three places back", "first": "repeat an early token",
    "copy": "repeat a word", "reverse": "repeat a word backwards", "passkey": "find digits hidden in noise",
    "flipflop": "read the bit written last", "direction": "is the marker to the left or to the right",
    "masked": "guess masked characters, by an encoder", "extension": "RoPE at four times its length, by every scaling",
    "translate": "English to Chinese by an encoder-decoder: loss and BLEU of short and long sentences",
    "report": "write the report of a folder again",
    "compare": "one report of several folders",
}
_LM = {"none": "nope", "sinusoidal": "sinusoidal", "learned": "learned", "rope": "rope", "alibi": "alibi", "t5": "t5", "kerple": "kerple kernel=log"}
_MORE = {"xpos": "xpos", "pope": "pope", "fire": "fire", "sandwich": "sandwich", "cope": "cope", "shaw": "shaw", "randomized": "rope"}
_ENCODER = {"none": "nope", "sinusoidal": "sinusoidal", "rope": "rope", "alibi": "alibi", "alibi_half": "alibi future=half_heads", "t5": "t5"}
# ALiBi of an encoder must tell left from right.
_TRANSLATE = {**{label: _LM[label] for label in ("none", "sinusoidal", "rope", "t5")}, "alibi": "alibi future=half_heads ;; alibi"}


@dataclass(frozen=True)
class Part:
    """A task of quick or full: labels and their schemes, seeds, options that differ from the task's own."""

    task: str
    schemes: dict[str, str]
    seeds: int = 1
    options: dict[str, Any] = field(default_factory=dict)


def _some(*labels: str, of: dict[str, str] | None = None) -> dict[str, str]:
    return {label: (of or _LM)[label] for label in labels}


QUICK = [
    Part("lm", _LM),
    Part("shift", _some("learned", "rope", "alibi", "t5")),
    Part("direction", _some("sinusoidal", "rope", "alibi", "alibi_half", of=_ENCODER)),
    Part("extension", _some("rope")),
]
_EIGHT = {**_LM, "cope": "cope"}
FULL = [
    Part("lm", {**_LM, **_MORE}, 3, {"train": 64, "test": 512, "steps": 1000, "lr": 2e-3}),
    Part("shift", _EIGHT, 2),
    Part("first", _EIGHT, 2),
    Part("copy", _LM, 2),
    Part("reverse", _LM, 2),
    Part("passkey", _LM, 2),
    Part("flipflop", _EIGHT, 2),
    Part("direction", {**_ENCODER, "learned": "learned"}, 2),
    Part("masked", {**_ENCODER, "learned": "learned"}, 2),
    Part("extension", _some("rope"), 3, {"train": 128, "test": 512, "steps": 800, "batch": 16}),
    Part("extension", _some("rope"), 2, {"measure": "passkey", "train": 48, "test": 192, "steps": 1500}),
    Part("translate", _TRANSLATE),
]
CHOICES = {"quick": QUICK, "full": FULL}


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="./lab", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="words:\n" + "\n".join(f"  {w:10} {t}" for w, t in _WORDS.items()) + "\n\n" + _EXAMPLES)
    p.add_argument("word", nargs="?", metavar="WORD", help="one of the words below; may be left out beside --task FILE.py:Name")
    p.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="of compare, and of report")
    p.add_argument("--scheme", action="append", metavar="S", help='SCHEME text, FILE.py:Name, or several joined by " | "; may be repeated')
    p.add_argument("--task", metavar="T", help="FILE.py:Name, a task of your own; with quick and full: this task alone")
    for name, text in (("train", "tokens of a text that is trained on"), ("test", "longest text that is tested"),
                       ("steps", "steps of training"), ("batch", "texts a step"), ("width", "channels of the model"),
                       ("layers", "layers"), ("heads", "heads of a layer")):
        p.add_argument(f"--{name}", type=int, metavar="N", help=f"{text}; each task has its own")
    p.add_argument("--lr", type=float, metavar="X", help="highest learning rate; each task has its own")
    p.add_argument("--text", metavar="F", help="licences (of Debian's base-files, always there), bible (package sword-text-web), a file or a folder; "
                   "of translate: a folder for LibreOffice's help, which is fetched into it (5.2 MB) if it is not there")
    p.add_argument("--held-out", metavar="FILE", help="the file of the tests; by default the last of the folder")
    p.add_argument("--positions", choices=("counted", "randomized"), help="randomized: drawn from twice the longest text")
    p.add_argument("--measure", choices=("loss", "passkey"), help="of extension")
    p.add_argument("--seeds", type=int, metavar="N", help="runs of each scheme, seeds 0 to N - 1")
    p.add_argument("--workers", type=int, metavar="N", help="runs at a time, one thread each; default: the processors")
    p.add_argument("--plan", action="store_true", help="print the runs and their time, start nothing")
    p.add_argument("--check", action="store_true", help="fail if a claim fails or a run ends early")
    p.add_argument("--json", action="store_true", help="the plan, or claims and results, as JSON on standard output")
    p.add_argument("-o", dest="out", type=Path, default=None, metavar="DIR", help="folder of results and report; what is there is not run again")
    return p


def _parts(a: argparse.Namespace) -> list[Part]:
    from .tasks import NAMES

    if a.word in CHOICES:
        if a.scheme:
            raise LabError(f"--scheme belongs to one task; {a.word} has its own schemes")
        parts = [part for part in CHOICES[a.word] if a.task in (None, part.task)]
        if not parts:
            raise LabError(f'--task of {a.word} must be one of its tasks, got "{a.task}"')
        return parts
    task = a.word or a.task
    if task is None or (a.word and a.word not in NAMES):
        raise LabError(f'the word must be {", ".join(_WORDS)}, got "{a.word or ""}"')
    if a.word and a.task:
        raise LabError(f'--task belongs to quick, full, or no word; the word {a.word} is a task, got "{a.task}"')
    own = {"direction": _ENCODER, "masked": _ENCODER, "extension": _some("rope"), "translate": _TRANSLATE}
    return [Part(task, {s: s for s in a.scheme} if a.scheme else own.get(task, _LM))]


def _jobs(a: argparse.Namespace) -> list[Job]:
    from .runs import Job
    from .tasks import Options, defaults, reads

    given = {f.name: getattr(a, f.name) for f in fields(Options) if getattr(a, f.name) is not None}
    jobs = []
    for part in _parts(a):
        seeds = part.seeds if a.seeds is None else a.seeds
        if seeds < 1:
            raise LabError(f"--seeds must be 1 or more, got {seeds}")
        meant = {n: x for n, x in given.items() if a.word not in CHOICES or reads(part.task, n)}
        chosen = {**defaults(part.task), **part.options, **meant}
        if "train" in given and "test" not in given:
            chosen["test"] = max(chosen["test"], given["train"])
        if part.task == "translate" and a.word == "full":  # --text of the other tasks is in one language
            chosen["text"] = defaults(part.task)["text"]
        for label, scheme in part.schemes.items():
            options = Options(**{**chosen, **({"positions": "randomized"} if label == "randomized" else {})})
            jobs += [Job(part.task, label, scheme, seed, options) for seed in range(seeds)]
    return sorted(jobs, key=lambda job: job.seed) if a.word in CHOICES else jobs


def _with_text(jobs: list[Job]) -> list[Job]:
    """Without translate where its text cannot be had; the other tasks of full need no network."""
    from .tasks import make

    try:
        for options in {job.options for job in jobs if job.task == "translate"}:
            make("translate", options)
    except LabError as e:
        sys.stderr.write(f"lab: translate is left out: {e}\n")
        return [job for job in jobs if job.task != "translate"]
    return jobs


def _plan(jobs: list[Job], missing: list[Job], workers: int, as_json: bool) -> int:
    from .runs import duration

    work = sum(job.seconds for job in missing)
    if as_json:
        rows = [{"task": j.task, "label": j.label, "scheme": j.scheme, "seed": j.seed, "seconds": round(j.seconds, 1)} for j in missing]
        print(json.dumps({"schema": "posenc.lab_plan/1", "runs": rows, "seconds": round(work, 1), "workers": workers}, ensure_ascii=False))
        return 0
    for task in dict.fromkeys(job.task for job in jobs):
        of = [job for job in missing if job.task == task]
        names = ", ".join(dict.fromkeys(job.label for job in of)) or "nothing: all of it is there"
        print(f"{task:10} {len(of):3} runs {duration(sum(j.seconds for j in of)):>12}   {names}")
    print(f"{len(missing)} of {len(jobs)} runs to do: {duration(work)} of one processor, about {duration(work / workers)} with {workers} at a time")
    return 0


def _run(a: argparse.Namespace) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded
    from . import runs

    workers = a.workers if a.workers is not None else len(os.sched_getaffinity(0))
    if a.folders:
        raise LabError(f'folders belong to report and compare, got "{a.folders[0]}"')
    if workers < 1:
        raise LabError(f"--workers must be 1 or more, got {workers}")
    if a.out is None and not a.plan:
        raise LabError("-o must name the folder of the results")
    jobs = _jobs(a)
    if a.word == "full" and not a.task:
        jobs = _with_text(jobs)
    sys.stderr.write(f"checking {len({(j.task, j.scheme, j.options) for j in jobs})} models\n")
    jobs = runs.check(jobs)
    if a.plan and (a.out is None or not a.out.exists()):
        return _plan(jobs, jobs, workers, a.json)
    kept = runs.Results(a.out)
    kept.check(jobs)
    missing = kept.missing(jobs)
    if a.plan:
        return _plan(jobs, missing, workers, a.json)
    errors = runs.Queue(kept, missing, workers, runs.terminal).run()
    return _report(kept.rows, a, errors)


def _report(rows: list[dict[str, Any]], a: argparse.Namespace, errors: list[str]) -> int:
    for line in errors:
        sys.stderr.write(f"lab: {line}\n")
    if not rows:  # every run ended with an error
        return 1
    written, made = report.write(rows, a.out), claims.judge(rows)
    if a.json:
        print(json.dumps({"schema": "posenc.lab_report/1", "claims": made, "results": rows, "errors": errors}, ensure_ascii=False))
    else:
        print(report.text(rows))
    sys.stderr.write(f"{a.out / 'report.html'} and {len(written) - 1} more files\n")
    failed = [c["name"] for c in made if c["verdict"] == "fail"]
    if a.check and (failed or any("failed" in row for row in rows)):
        sys.stderr.write(f"lab: --check: {', '.join(failed) or 'a run'} failed\n")
        return 1
    return 1 if errors else 0


def _read(a: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """report and compare: what is there, nothing is run."""
    for name, value in vars(a).items():
        if name not in ("word", "folders", "out", *(("check", "json") if a.word == "report" else ())) and value != parser.get_default(name):
            raise LabError(f'--{name.replace("_", "-")} does not belong to {a.word}')
    if a.word == "compare":
        if len(a.folders) < 2:
            raise LabError(f"compare needs two folders or more, got {len(a.folders)}")
        if a.out is None:
            raise LabError("compare needs -o, the folder to write")
        print(*report.compare(a.folders, a.out), sep="\n")
        return 0
    folder = a.folders[0] if a.folders else a.out
    if folder is None:
        raise LabError("report needs a folder: the one that -o named")
    a.out = a.out or folder
    return _report(results.read(folder), a, [])


def main(words: Sequence[str] | None = None) -> int:
    parser = _parser()
    a = parser.parse_args(words)
    try:
        return _read(a, parser) if a.word in ("report", "compare") else _run(a)
    except ValueError as e:  # LabError, and those of posenc: they name argument, rule and value
        sys.stderr.write(f"lab: {e}\n")
        return 2
    except OSError as e:
        sys.stderr.write(f"lab: {e.filename or a.out}: {e.strerror}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nlab: stopped; the same command goes on from here\n")
        return 130

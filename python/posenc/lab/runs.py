# SPDX-License-Identifier: Apache-2.0
"""A queue of runs: checked before the first step, each kept once in results.jsonl, continued after an end at any moment."""
from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Callable

from .errors import LabError
from .results import SCHEMA, identity, read
from .tasks import Options


@dataclass(frozen=True)
class Job:
    """One run that is wanted. label: its short name in the report; scheme: what was asked for, or, once checked, what runs."""

    task: str
    label: str
    scheme: str
    seed: int
    options: Options
    data: str = ""
    seconds: float = 0.0  # of one core, estimated

    def row(self) -> dict[str, Any]:
        """Its part of results.jsonl that is known before it runs."""
        return {"schema": SCHEMA, "task": self.task, "label": self.label, "scheme": self.scheme, "seed": self.seed, "options": asdict(self.options),
                "data": self.data}

    def key(self) -> str:
        return identity(self.row())


def versions() -> dict[str, str]:
    import torch

    import posenc

    return {"posenc": posenc.__version__, "torch": str(torch.__version__), "python": platform.python_version()}


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


# ---------------------------------------------------------------- before the first step

def check(jobs: list[Job]) -> list[Job]:
    """Every scheme, task and text, by a model of its size and two steps: the jobs with the SCHEME that runs and the time it takes.

    Throws LabError for the first that cannot run; nothing is started then.
    """
    made: dict[tuple[str, str, Options], Job] = {}
    out: dict[str, Job] = {}
    for job in jobs:
        key = (job.task, job.scheme, job.options)
        if key not in made:
            made[key] = _checked(job)
        whole = replace(made[key], label=job.label, seed=job.seed)
        out.setdefault(whole.key(), whole)
    return list(out.values())


def _checked(job: Job) -> Job:
    import torch

    from .train import NotFinite, Run, update

    torch.set_num_threads(1)
    o = job.options
    for name, least in (("train", 2), ("test", 2), ("steps", 1), ("batch", 1), ("width", 1), ("layers", 1), ("heads", 1)):
        if getattr(o, name) < least:
            raise LabError(f"--{name} must be {least} or more, got {getattr(o, name)}")
    if o.test < o.train:
        raise LabError(f"--test must be --train or longer, {o.train}, got {o.test}")
    if o.width % o.heads:
        raise LabError(f"--width must be a multiple of --heads, {o.heads}, got {o.width}")
    if not 0 < o.lr < 1:
        raise LabError(f"--lr must be between 0 and 1, got {o.lr:g}")
    try:
        run = Run(job.task, job.scheme, job.seed, o)
        took = []
        for step in range(2):
            started = time.process_time()
            update(run.model, run.adam, run.loss(), step)
            took.append(time.process_time() - started)
    except NotFinite as e:
        raise LabError(f'scheme "{job.scheme}" in {job.task}: {e}') from e
    except LabError:
        raise
    except (Exception, SystemExit) as e:  # code of one's own may raise anything
        raise LabError(f'scheme "{job.scheme}" in {job.task}: {_told(e)}') from e
    seconds = took[1] * (o.steps + run.task.judged_tokens / (3 * o.batch * o.train))
    return replace(job, scheme=run.model.scheme.text, data=run.task.corpus.digest if run.task.corpus else "", seconds=seconds)


def _told(e: BaseException) -> str:
    """The message; of an error that is not posenc's, its kind and where it was raised too."""
    if isinstance(e, ValueError) and str(e).startswith("["):
        return str(e)
    place = traceback.extract_tb(e.__traceback__)[-1]
    where = "" if isinstance(e, SyntaxError) else f" ({place.filename}, line {place.lineno})"
    return f"{type(e).__name__}: {e}{where}"


# ---------------------------------------------------------------- results

class Results:
    """results.jsonl of a folder, held by one program at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "results.jsonl"
        if folder.exists() and not folder.is_dir():
            raise LabError(f'-o must be a folder, got the file "{folder}"')
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(folder / ".lock", "w", encoding="ascii")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise LabError(f'-o must be a folder that no other lab writes to, got "{folder}"') from e
        self._cut()
        self.rows = read(self.path) if self.path.exists() and self.path.stat().st_size else []

    def _cut(self) -> None:
        """Drops a last line that was not written whole."""
        if self.path.exists():
            whole = self.path.read_bytes().rfind(b"\n") + 1
            if whole != self.path.stat().st_size:
                os.truncate(self.path, whole)

    def check(self, jobs: list[Job]) -> None:
        """Refuses to mix results of other versions or of another text with what is wanted."""
        mine, wanted = versions(), {job.key(): job for job in jobs}
        for row in self.rows:
            for part in ("posenc", "torch"):
                theirs = row["versions"].get(part)
                if theirs != mine[part]:
                    raise LabError(f"{self.path} has results of {part} {theirs}, this is {mine[part]}: choose another folder by -o")
            job = wanted.get(identity(row))
            if job is not None and row.get("data", "") != job.data:
                raise LabError(f"{self.path} has results of another text by the name {job.options.text}: choose another folder by -o")

    def missing(self, jobs: list[Job]) -> list[Job]:
        there = {identity(row) for row in self.rows}
        return [job for job in jobs if job.key() not in there]

    def add(self, row: dict[str, Any]) -> None:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        with open(self.path, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(row)

    def checkpoint(self, job: Job) -> Path:
        name = hashlib.sha256(f"{job.key()} {job.data} {versions()}".encode()).hexdigest()[:24]
        return self.folder / "checkpoints" / f"{name}.pt"


# ---------------------------------------------------------------- the queue

def _work(job: Job, checkpoint: Path, to: Connection) -> None:
    """One run in a process of its own, one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    import posenc

    from .train import Run, warm_up

    torch.set_num_threads(1)
    posenc.set_num_threads(1)
    warm_up()
    try:
        run = Run(job.task, job.scheme, job.seed, job.options, checkpoint)
        to.send(("result", run.result(lambda share: to.send(("share", share)))))
    except (Exception, SystemExit) as e:  # told by the parent
        to.send(("error", f"{type(e).__name__}: {e}"))


@dataclass
class _Running:
    job: Job
    process: Any
    pipe: Connection
    share: float = 0.0


class Queue:
    """Runs what is missing, `workers` at a time. tell: progress, one text at a time; final is whether it stays."""

    def __init__(self, results: Results, jobs: list[Job], workers: int, tell: Callable[[str, bool], None]) -> None:
        self.results, self.workers, self.tell = results, workers, tell
        self.waiting = list(jobs)
        self.total, self.started = len(jobs), time.monotonic()
        self.work = sum(job.seconds for job in jobs)
        self.done_work = 0.0
        self.running: list[_Running] = []
        self.errors: list[str] = []

    def run(self) -> list[str]:
        """What went wrong, one line for each run that could not end."""
        self._check_disk()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["posenc.lab.train"])
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.workers:
                    self._start(context, self.waiting.pop(0))
                self._listen()
        finally:
            for r in self.running:
                r.process.kill()
        return self.errors

    def _check_disk(self) -> None:
        need = 64 * 2 ** 20 * max(1, min(self.workers, len(self.waiting)))
        free = shutil.disk_usage(self.results.folder).free
        if free < need:
            raise LabError(f"-o must be on a disk with {need >> 20} MiB free for checkpoints, {self.results.folder} has {free >> 20}")

    def _start(self, context: Any, job: Job) -> None:
        here, there = context.Pipe(duplex=False)
        checkpoint = self.results.checkpoint(job)
        checkpoint.parent.mkdir(exist_ok=True)
        process = context.Process(target=_work, args=(job, checkpoint, there), daemon=True)
        process.start()
        there.close()
        self.running.append(_Running(job, process, here))

    def _listen(self) -> None:
        for pipe in wait([r.pipe for r in self.running], timeout=1.0):
            r = next(x for x in self.running if x.pipe is pipe)
            try:
                kind, what = r.pipe.recv()
            except EOFError:
                r.process.join()
                kind, what = "error", f"its process ended with {r.process.exitcode} (memory?)"
            if kind == "share":
                r.share = what
                continue
            self._ended(r, kind, what)
        self.tell(self._line(), False)

    def _ended(self, r: _Running, kind: str, what: Any) -> None:
        self.running.remove(r)
        r.process.join()
        self.done_work += r.job.seconds
        job = r.job
        name = f"{job.task} {job.label} seed {job.seed}"
        if kind == "error":
            self.errors.append(f"{name}: {what}")
            self.tell(self.errors[-1], True)
            return
        self.results.add({**job.row(), "versions": versions(), "processor": processor(), **what})
        self.results.checkpoint(job).unlink(missing_ok=True)
        failed = f"  {what['failed']}" if "failed" in what else ""
        self.tell(f"{self.total - len(self.waiting) - len(self.running)}/{self.total}  {name}  {what['seconds']:.0f} s{failed}", True)

    def _line(self) -> str:
        now = self.done_work + sum(r.share * r.job.seconds for r in self.running)
        spent = time.monotonic() - self.started
        left = (self.work - now) / max(1, min(self.workers, len(self.waiting) + len(self.running)))
        if now > 0.02 * self.work and spent > 3:
            left = spent * (self.work - now) / now
        names = ", ".join(f"{r.job.task} {r.job.label} {100 * r.share:.0f} %" for r in self.running)
        return f"{names}  {duration(left)} left"


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(round(seconds)), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def terminal(text: str, stays: bool) -> None:
    """Progress on standard error: lines that stay, and on a terminal one line that changes."""
    live = sys.stderr.isatty()
    if live:
        sys.stderr.write("\r\033[K" + text[: shutil.get_terminal_size().columns - 1] + ("\n" if stays else ""))
    elif stays:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()

# SPDX-License-Identifier: Apache-2.0
"""lost_ranks.py PROGRAM MPIRUN...: a rank that is killed ends all at once, one that stops after the time-out of 2 s.

POSENC_LOST_RANKS=20,20 kills and stops so many. Prints the seconds: 1.1 and 2.1 on an idle machine. A rank that is alive after MOST would stay.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

RANKS, MOST = 3, 60
KILLED, STOPPED = (int(n) for n in os.environ.get("POSENC_LOST_RANKS", "2,1").split(","))


def numbers(folder):
    """Of the processes, once all have begun."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        texts = [open(os.path.join(folder, n)).read() for n in os.listdir(folder)]
        if len(texts) == RANKS and all(texts):
            return {int(n): int(open(os.path.join(folder, n)).read()) for n in os.listdir(folder)}
        time.sleep(0.05)
    sys.exit("the ranks did not begin")


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def lose(program, mpirun, fault, rank):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([*mpirun, "-n", str(RANKS), program, folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ranks = {}
        try:
            ranks = numbers(folder)
            time.sleep(0.2)
            began = time.monotonic()
            os.kill(ranks[rank], fault)
            while run.poll() is None or any(map(is_alive, ranks.values())):
                if time.monotonic() - began > MOST:
                    sys.exit(f"{MOST} s after rank {rank} had {fault.name}, {[r for r, p in ranks.items() if is_alive(p)]} are alive")
                time.sleep(0.02)
            if run.returncode == 0:
                sys.exit(f"mpirun ended well after {fault.name}")
            return time.monotonic() - began
        finally:
            run.kill()
            for process in ranks.values():
                if is_alive(process):
                    os.kill(process, signal.SIGKILL)
            run.wait()


def main():
    program, *mpirun = sys.argv[1:]
    for fault, count in ((signal.SIGKILL, KILLED), (signal.SIGSTOP, STOPPED)):
        took = [lose(program, mpirun, fault, n % RANKS) for n in range(count)]
        print(f"{fault.name}: all ended after {min(took):.1f} to {max(took):.1f} s")


main()

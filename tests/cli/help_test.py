# SPDX-License-Identifier: Apache-2.0
"""Help texts are golden: what a user reads changes only on purpose."""
import os
import pathlib
import re
import shlex
import subprocess

from command_line import *

GOLDEN = pathlib.Path(__file__).parent / "golden"
# The verbs that the program itself lists: a new one needs no line here.
LISTED = subprocess.run([PROGRAM, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
VERBS = re.findall(r"^  ([a-z]+) ", LISTED[LISTED.index("Verbs:"):], re.M)


class Help(Case):
    def test_golden(self):
        for verb in [None, *VERBS]:
            with self.subTest(verb=verb):
                text = self.posenc(*([verb] if verb else []), "--help").decode()
                path = GOLDEN / f"{verb or 'posenc'}.txt"
                if os.environ.get("POSENC_UPDATE_GOLDEN"):
                    GOLDEN.mkdir(exist_ok=True)
                    path.write_text(text)
                self.assertEqual(text, path.read_text())
                self.assertIn("posenc", text)

    def test_every_verb_is_listed(self):
        """Each file of src/report/verbs is a verb of the table, and nothing else is."""
        self.assertEqual(sorted(VERBS), sorted(p.stem for p in (SOURCE / "src" / "report" / "verbs").glob("*.cpp")))

    def test_every_verb_has_an_example(self):
        for verb in VERBS:
            self.assertIn("Example", self.posenc(verb, "--help").decode(), verb)

    def test_version_goes_to_stdout(self):
        self.assertRegex(self.posenc("--version").decode(), r"posenc \d+\.\d+\.\d+")

    def test_usage_errors(self):
        self.error(code=2, says="a verb is needed")
        self.error("--fast", code=2, says=["a verb must come first", '"--fast"'])
        self.error("frobnicate", code=2, says="posenc:")
        self.error("explain", code=2, says=["MODEL is required", "posenc explain --help"])
        self.error("table", SCHEME, "--positions", "0:4", "--nonsense", "1", "-o", "-", code=2, says="nonsense")

    def test_completion_and_man(self):
        for shell in ["bash", "zsh", "fish"]:
            text = self.posenc("completion", shell).decode()
            for verb in VERBS:
                self.assertIn(verb, text)
        # An apostrophe in a description must not end its quotes.
        script = self.posenc("completion", "zsh").decode()
        words = shlex.split(script[script.index("verbs=(") + 7:script.index("  )\n")])
        self.assertEqual([w.split(":")[0] for w in words], VERBS)
        self.assertIn("doctor:report what is wrong, risky or ambiguous in a model's positions", words)
        for line in self.posenc("completion", "fish").decode().splitlines():
            inside = False
            for c in line.replace("\\'", ""):
                inside ^= c == "'"
            self.assertFalse(inside, line)
        done = subprocess.run(["bash", "-n"], input=self.posenc("completion", "bash"), stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        page = self.posenc("man").decode()
        self.assertTrue(page.startswith(".TH POSENC 1"))
        for verb in VERBS:
            part = page[page.index(f".SS posenc {verb}\n"):].replace("\\-", "-")[4:]
            part = part[:part.index("\n.S")]
            options = set(re.findall(r"--[a-z-]+", self.posenc(verb, "--help").decode().split("Examples:")[0]))
            self.assertIn("--help", options)
            for option in options:
                self.assertRegex(part, rf"\n\.B [^\n]*{option}\b", f"{verb} {option}")
        self.assertIn("\n.B MODEL", page)


main()

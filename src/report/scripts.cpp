// SPDX-License-Identifier: Apache-2.0
#include "scripts.h"

#include <fmt/format.h>

#include "posenc/report/verb.h"
#include "posenc/version.h"

namespace posenc::report {
namespace {

struct DescribedVerb {
  const Verb* verb;
  Words words{};

  std::string name() const { return verb->name; }
  // "--help" and the long name of each option.
  std::vector<std::string> options() const {
    std::vector<std::string> out{"--help"};
    for (const Word& word : words.all())
      if (!word.is_positional()) out.push_back("--" + word.name());
    return out;
  }
};

std::deque<DescribedVerb> described_verbs() {
  std::deque<DescribedVerb> all;
  for (const Verb* verb : verbs()) {
    DescribedVerb& one = all.emplace_back(DescribedVerb{verb});
    (void)verb->declare(one.words);
  }
  return all;
}

std::string joined(const std::vector<std::string>& v, const char* between) {
  return fmt::format("{}", fmt::join(v, between));
}

// Inside single quotes a quote ends them: closed, said and opened again (zsh), or escaped (fish).
// _describe of zsh takes the first plain colon for the end of the name.
std::string quoted(std::string_view text, std::string_view quote, std::string_view colon) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += quote;
    else if (c == ':')
      out += colon;
    else
      out += c;
  }
  return out;
}

std::string bash() {
  std::vector<std::string> names;
  std::string cases;
  for (const DescribedVerb& v : described_verbs()) {
    names.push_back(v.name());
    cases += fmt::format("    {}) options=\"{}\" ;;\n", v.name(), joined(v.options(), " "));
  }
  return fmt::format(
      "# bash completion for posenc\n_posenc() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" options=\"\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\")); return\n  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}  esac\n"
      "  case \"$word\" in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n  esac\n}}\ncomplete -o filenames -F "
      "_posenc posenc\n",
      joined(names, " "), cases);
}

std::string zsh() {
  std::string verbs_text, cases;
  for (const DescribedVerb& v : described_verbs()) {
    verbs_text += fmt::format("    '{}:{}'\n", v.name(), quoted(v.verb->summary, "'\\''", "\\:"));
    cases += fmt::format("    {}) compadd -- {}; _files ;;\n", v.name(), joined(v.options(), " "));
  }
  return fmt::format(
      "#compdef posenc\n_posenc() {{\n  local -a verbs\n  verbs=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n  case $words[2] in\n{}  "
      "esac\n}}\n"
      "_posenc \"$@\"\n",
      verbs_text, cases);
}

std::string fish() {
  std::string out = "# fish completion for posenc\n";
  for (const DescribedVerb& v : described_verbs()) {
    out += fmt::format("complete -c posenc -n __fish_use_subcommand -a {} -d '{}'\n", v.name(),
                       quoted(v.verb->summary, "\\'", ":"));
    for (const std::string& option : v.options())
      out += fmt::format("complete -c posenc -n '__fish_seen_subcommand_from {}' -l {}\n", v.name(),
                         option.substr(2));
  }
  return out;
}

// roff: a leading dot or quote and every backslash and dash need care.
std::string roff(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\')
      out += "\\e";
    else if (text[i] == '-')
      out += "\\-";
    else
      out += text[i];
  }
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  return shell == "bash" ? bash() : shell == "zsh" ? zsh() : fish();
}

std::string manual_page() {
  std::string out = fmt::format(
      ".TH POSENC 1 \"\" \"posenc {}\" \"User Commands\"\n.SH NAME\nposenc \\- {}\n"
      ".SH SYNOPSIS\n.B posenc\n.I VERB\n[options]\n.SH VERBS\n",
      kVersion, roff(kProgramSummary));
  for (const DescribedVerb& v : described_verbs()) {
    out += fmt::format(".SS posenc {}\n{}\n", v.name(), roff(v.verb->summary));
    out += ".TP\n.B \\-h,\\-\\-help \nPrint this help message and exit\n";
    for (const Word& word : v.words.all())
      out += fmt::format(".TP\n.B {} {}\n{}\n", roff(word.names), roff(word.type), roff(word.help));
    if (*v.verb->examples) out += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(v.verb->examples));
  }
  out +=
      ".SH EXIT STATUS\n0 success, 1 a negative answer, 2 usage, 3 bad input, 4 resources.\n"
      ".SH ENVIRONMENT\n.TP\n.B POSENC_NUM_THREADS\nthreads of the pool\n.TP\n.B POSENC_ISA\n"
      "instruction set of the kernels (posenc bench prints the choices)\n.TP\n.B "
      "POSENC_ACCESS_PATTERN\n"
      "sequential or interleave_pages: how large tensors are walked through (by the processor's "
      "maker)\n";
  return out;
}

}  // namespace posenc::report

// SPDX-License-Identifier: Apache-2.0
#include "completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "posenc/version.h"

namespace posenc::cli {
namespace {

std::vector<std::string> words(const CLI::App& verb) {
  std::vector<std::string> out;
  for (const CLI::Option* o : verb.get_options())
    for (const std::string& l : o->get_lnames()) out.push_back("--" + l);
  return out;
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

std::vector<const CLI::App*> verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string bash(const CLI::App& app) {
  std::vector<std::string> names;
  std::string cases;
  for (const CLI::App* v : verbs(app)) {
    names.push_back(v->get_name());
    cases += fmt::format("    {}) options=\"{}\" ;;\n", v->get_name(), joined(words(*v), " "));
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

std::string zsh(const CLI::App& app) {
  std::string verbs_text, cases;
  for (const CLI::App* v : verbs(app)) {
    verbs_text +=
        fmt::format("    '{}:{}'\n", v->get_name(), quoted(v->get_description(), "'\\''", "\\:"));
    cases +=
        fmt::format("    {}) compadd -- {}; _files ;;\n", v->get_name(), joined(words(*v), " "));
  }
  return fmt::format(
      "#compdef posenc\n_posenc() {{\n  local -a verbs\n  verbs=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n  case $words[2] in\n{}  "
      "esac\n}}\n"
      "_posenc \"$@\"\n",
      verbs_text, cases);
}

std::string fish(const CLI::App& app) {
  std::string out = "# fish completion for posenc\n";
  for (const CLI::App* v : verbs(app)) {
    out += fmt::format("complete -c posenc -n __fish_use_subcommand -a {} -d '{}'\n", v->get_name(),
                       quoted(v->get_description(), "\\'", ":"));
    for (const CLI::Option* o : v->get_options())
      for (const std::string& l : o->get_lnames())
        out += fmt::format("complete -c posenc -n '__fish_seen_subcommand_from {}' -l {}\n",
                           v->get_name(), l);
  }
  return out;
}

// "-h,--help", or MODEL of what has its place.
std::string shown_name(const CLI::Option& o) {
  return o.nonpositional() ? o.get_name(false, true) : o.get_name(true);
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

std::string completion_script(const CLI::App& app, const std::string& shell) {
  return shell == "bash" ? bash(app) : shell == "zsh" ? zsh(app) : fish(app);
}

std::string manual_page(const CLI::App& app) {
  std::string out = fmt::format(
      ".TH POSENC 1 \"\" \"posenc {}\" \"User Commands\"\n.SH NAME\nposenc \\- {}\n"
      ".SH SYNOPSIS\n.B posenc\n.I VERB\n[options]\n.SH VERBS\n",
      kVersion, roff(app.get_description()));
  for (const CLI::App* v : verbs(app)) {
    out += fmt::format(".SS posenc {}\n{}\n", v->get_name(), roff(v->get_description()));
    for (const CLI::Option* o : v->get_options())
      out += fmt::format(".TP\n.B {} {}\n{}\n", roff(shown_name(*o)),
                         o->get_type_size() == 0 ? "" : roff(o->get_type_name()),
                         roff(o->get_description()));
    if (!v->get_footer().empty()) out += ".PP\n.nf\n" + roff(v->get_footer()) + "\n.fi\n";
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

}  // namespace posenc::cli

// SPDX-License-Identifier: Apache-2.0
// The words of a command line to a verb, and what the verb answers to files and the console.
#include "posenc/report/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <deque>
#include <sstream>

#include "common.h"
#include "notes.h"
#include "posenc/report/verb.h"
#include "posenc/version.h"
#include "scripts.h"
#include "wrong_words.h"

namespace posenc::report {
namespace {

struct Declared {
  const Verb* verb = nullptr;
  Words words{};
  Verb::Run run{};
};

// The verb that the words choose, or a text that they ask for: help, version.
struct Chosen {
  std::deque<Declared> all{};
  Declared* verb = nullptr;
  std::string text{};
};

void add(CLI::App& verb, Word& word, bool in_memory) {
  if (word.is_flag()) {
    verb.add_flag_callback(
        word.names, [&word] { (void)word.set(""); }, word.help);
    return;
  }
  const std::string name = word.is_positional() ? word.names : "--" + word.name();
  CLI::Option* option = verb.add_option(
      word.names,
      [&word, name](const CLI::results_t& values) {
        for (const std::string& value : values)
          if (const std::string wrong = word.set(value); !wrong.empty())
            throw CLI::ValidationError(name, wrong);
        return true;
      },
      word.help);
  option->type_name(word.type)->default_str(word.fallback);
  option->required(word.is_required && !(in_memory && word.is_output));
  if (word.is_repeatable)
    option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
}

void describe(CLI::App& app, Chosen& chosen, bool in_memory) {
  app.name("posenc");
  app.set_version_flag("--version", std::string("posenc ") + kVersion);
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.footer(
      "posenc VERB --help shows options and examples. Data go to stdout, messages to stderr.\n"
      "Exit codes: 0 success, 1 a negative answer, 2 usage, 3 bad input, 4 resources.");
  for (const Verb* verb : verbs()) {
    Declared& d = chosen.all.emplace_back(Declared{verb});
    d.run = verb->declare(d.words);
    CLI::App* app_verb = app.add_subcommand(verb->name, verb->summary);
    for (Word& word : d.words.all()) add(*app_verb, word, in_memory);
    app_verb->group("Verbs");
    app_verb->footer(verb->examples);
    app_verb->callback([&d, &chosen] { chosen.verb = &d; });
  }
}

void choose(std::span<const std::string> words, Chosen& chosen, bool in_memory) {
  CLI::App app(kProgramSummary);
  describe(app, chosen, in_memory);
  const std::string first = words.size() > 1 ? words[1] : "";
  const bool is_verb = !first.empty() && first[0] != '-';
  if (is_verb) refuse_unknown_verb(app, first);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::Success& e) {
    std::ostringstream out;
    app.exit(e, out, out);
    chosen.text = out.str();
  } catch (const CLI::ParseError& e) {
    throw UsageError(fmt::format("{} (posenc {}--help shows how)", said(app, e, first),
                                 is_verb ? first + " " : ""));
  }
}

// Refuses, before anything is read, an output that cannot be written as asked.
void check_output(Declared& d) {
  Words::Output& out = d.words.out;
  const Holds holds = d.words.holds();
  if (holds == Holds::picture && out.path.empty())
    out.path = "plot." + (out.format.empty() ? "svg" : out.format);
  if (out.path.empty()) {
    if (!out.format.empty()) throw UsageError("--format goes with -o -");
    return;
  }
  const Request asked{out.path, out.format};
  if (holds == Holds::one_array || holds == Holds::arrays) {
    out.format = array_format(asked);
    if (holds == Holds::arrays && out.format != "safetensors")
      throw UsageError(fmt::format("{} writes several arrays: -o F.safetensors", d.verb->name));
  } else if (holds == Holds::picture) {
    out.format = picture_format(asked);
  }
  if (out.json && is_stdout(out.path))
    throw UsageError(fmt::format("--json and the {} cannot both go to stdout",
                                 holds == Holds::picture ? "picture" : "data"));
  std::vector<std::string> files;
  std::string model;
  for (const Word& word : d.words.all())
    for (const std::string& value : word.given) {
      if (word.is_file) files.push_back(value.substr(word.is_repeatable ? value.find('=') + 1 : 0));
      if (word.is_model) files.push_back(model = value);
    }
  refuse_overwriting(out.path, files, model);
}

void write(const std::string& path, std::span<const std::byte> bytes, const Console& to) {
  if (!is_stdout(path))
    write_file_atomically(path, bytes);
  else if (to.out)
    to.out({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void deliver(const Report& report, const Words::Output& out, const Console& to) {
  const auto print = [&](const std::string& text) {
    if (!text.empty() && to.out) to.out(text);
  };
  const auto remark = [&](const std::string& text) {
    if (!text.empty() && to.note) to.note(text);
  };
  if (!report.schema.empty()) {
    write(out.path, bytes_of(report.arrays, out.format), to);
    if (is_stdout(out.path)) return;
    const std::string text = written_text(report.schema, out.path, report.arrays, out.json);
    out.json ? print(text) : remark(text);
    return;
  }
  if (report.bytes) {
    write(out.path, std::as_bytes(std::span(report.bytes->data(), report.bytes->size())), to);
    if (is_stdout(out.path)) return;
    if (!out.json) remark(report.written);
  }
  print(report.text);
}

Request request_of(const Declared& d, const Console& to) {
  const Words::Output& out = d.words.out;
  Request request{out.path, out.format};
  request.json = out.json;
  request.color = to.color;
  request.out = to.out;
  request.note = to.note;
  request.progress = to.progress;
  request.checks = to.checks.selftest ? &to.checks : nullptr;
  return request;
}

}  // namespace

int run_command(std::span<const std::string> words, const Console& to) {
  Chosen chosen;
  choose(words, chosen, false);
  if (!chosen.text.empty()) {
    if (to.out) to.out(chosen.text);
    return kSuccess;
  }
  Declared& d = *chosen.verb;
  check_output(d);
  const NoteScope notes(to.note);
  const Report report = d.run(request_of(d, to));
  deliver(report, d.words.out, to);
  return report.code;
}

Report report_of(std::span<const std::string> words, const Console& to) {
  Chosen chosen;
  choose(words, chosen, true);
  if (!chosen.text.empty()) return {.text = std::move(chosen.text)};
  Request request = request_of(*chosen.verb, to);
  request.in_memory = true;
  if (request.format.empty() && chosen.verb->words.holds() == Holds::picture)
    request.format = "svg";
  const NoteScope notes(to.note);
  return chosen.verb->run(request);
}

}  // namespace posenc::report
